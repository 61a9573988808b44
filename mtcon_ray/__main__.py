"""Entry point of `python -m mtcon_ray`, equivalent to the command `mtcon-ray`."""

from mtcon_ray.cli.main import main

main()
