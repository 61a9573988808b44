"""`mtcon-ray sweep` with batch_size.yaml of this folder and the same options."""

import sys
from pathlib import Path

from mtcon_ray.cli.main import main

if __name__ == "__main__":
    main(["sweep", str(Path(__file__).with_name("batch_size.yaml")), *sys.argv[1:]])
