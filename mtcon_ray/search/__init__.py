"""The search section as plain data; `mtcon_ray.sweep` builds Optuna and Tune objects from it."""
