"""Stage 05: a queue in front of every resident model."""
