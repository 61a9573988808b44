"""Comparison of several systems under one budget: a sweep over seeds for each, and a table."""
