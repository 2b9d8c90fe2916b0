"""What the servers cost, measured side by side over real HTTP: `python -m benchmarks --help`."""
