"""What only a machine with a GPU can show, a file a check. Each check yields rows; `benchmarks.gpu_check` runs them."""
