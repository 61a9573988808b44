"""`mtcon-ray compare` on compare_methods.yaml beside this file; takes the same options."""

import sys
from pathlib import Path

from mtcon_ray.cli.main import main

if __name__ == "__main__":
    main(["compare", str(Path(__file__).with_name("compare_methods.yaml")), *sys.argv[1:]])
