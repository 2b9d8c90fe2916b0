"""Stage 02: one forward pass, many requests."""
