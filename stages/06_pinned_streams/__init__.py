"""Stage 06: streams and predictions pin the model that they use."""
