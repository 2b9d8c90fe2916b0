"""Stage 03: every step is a new batch, and every token finds its way home."""
