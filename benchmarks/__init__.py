"""Benchmarks of speed, memory and search cost; the results are in README.md."""
