"""Checks and speed of all CUDA paths, on one GPU in less than eight minutes: see `gpu.rows`."""
