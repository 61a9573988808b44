"""Entry point of `python -m mtcon_ray`, equivalent to the command `mtcon-ray`."""

import os
import sys

# Python looks for modules in the working directory first, which may be a folder of data.
if sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from mtcon_ray.cli.main import main

main()
