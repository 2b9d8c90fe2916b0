"""Engines without a server, each behind its stdin and stdout: `python -m benchmarks.peers.engines.NAME MODEL DTYPE`."""
