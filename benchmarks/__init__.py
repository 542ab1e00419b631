"""Speed, measured as ratios within one run: `make bench`, or `python -m benchmarks [group …]`."""
