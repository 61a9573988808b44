"""Several systems under one budget: a sweep over seeds for each, one table and one picture."""
