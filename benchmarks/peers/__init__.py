"""What the stages are compared with, each a FastAPI app in a file of its own: `python -m benchmarks.peers NAME`."""
