"""What the stages are compared with.

For stages 01 to 03, FastAPI apps, each in a file of its own: `python -m benchmarks.peers NAME`. For stage 07, other
engines: vLLM (`completions.py`), and those in `engines/`.
"""
