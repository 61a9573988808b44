"""`python -m mtcon_ray` is `mtcon-ray`."""

from mtcon_ray.cli.main import main

main()
