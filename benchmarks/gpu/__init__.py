"""Checks and speed of all CUDA paths, on a GPU in less than eight minutes: see `gpu.rows`."""
