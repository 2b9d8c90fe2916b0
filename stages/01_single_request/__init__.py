"""Stage 01: one request, one process, one reply."""
