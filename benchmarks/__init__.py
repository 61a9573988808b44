"""Benchmarks of speed, memory and search cost, with results in README.md."""
