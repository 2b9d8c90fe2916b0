"""Stage 07: a KV cache in pages, and the whole path of a request through an engine."""
