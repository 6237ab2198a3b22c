"""How fast it is, as ratios in one run: `python -m benchmarks`. Nothing here is a test; nothing is timed elsewhere."""
