"""Stage 04: many models on a box that has room for two."""
