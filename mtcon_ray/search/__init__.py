"""The search section as plain data; `sweep` turns it into Optuna's and Ray Tune's objects."""
