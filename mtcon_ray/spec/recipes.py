"""Settings of the papers for each published data set, printed by `mtcon-ray prepare`."""

from collections.abc import Mapping
from typing import Any

# Fields that a spec on a published data set takes from its recipe by default. They follow from the
# images. Epochs, learning rate and method are the user's choice.
DEFAULTS = ("views.size", "model.encoder", "train.batch_size")


def _mscon(size: int, encoder: str, head_dim: int) -> dict[str, Any]:
    """Returns the settings of MSCon and MTCon for views of `size` pixels.

    Mu, Guttag and Makar 2023, arXiv:2307.02712. MTCon states the same settings.
    """
    return {
        "views.size": size,
        "model.encoder": {"name": encoder, "weights": "imagenet"},
        "model.head_dim": head_dim,
        "train.epochs": 200,
        "train.batch_size": 64,
        "train.lr": 0.05,
    }


# AMCL's released code with SimCLR. Wang et al. 2023, arXiv:2310.05615.
_AMCL: dict[str, Any] = {
    "views.crop_scale": [0.08, 1.0],
    "model.encoder": {"name": "resnet18", "stem": "small"},
    "model.head_dim": 128,
    "method": {"name": "amcl", "form": "simclr", "top_k": 100},
    "train.epochs": 1000,
    "train.batch_size": 512,
    "train.lr": 0.06,
    "train.warmup_epochs": 0,
    "train.lr_final": 0,
    "train.weight_decay": 5e-4,
    "train.max_grad_norm": 1,
}
# Values of other sections of the spec by dotted path, by kind of data.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    # MultiSupCon (Zaigrajew and Zieba) has TResNet-M, which needs the package timm, and no batch
    # size. Its code has 128.
    "celeba": {
        "views.size": 64,
        "model.encoder": {"name": "resnet50"},
        "model.head_dim": 128,
        "method": {"name": "multisupcon", "threshold": 0.3},
        "train.epochs": 80,
        "train.batch_size": 128,
        "train.lr": 0.5,
    },
    "cifar10": {"views.size": 32, **_AMCL},
    "cifar100": {"views.size": 32, **_AMCL},
    "cub200": _mscon(224, "resnet50", 64),
    "medic": _mscon(224, "resnet50", 64),
    "stl10": {"views.size": 96, **_AMCL},
    # No paper of the methods here trains on these images alone: a recipe for 1,470 images.
    "ucmerced": {
        "views.size": 128,
        "model.encoder": {"name": "resnet18"},
        "method": {"name": "multisupcon", "threshold": 0.3},
        "train.epochs": 200,
        "train.batch_size": 64,
    },
    "zappos50k": _mscon(112, "resnet18", 32),
}


def with_recipe_defaults(raw: Any) -> Any:
    """Returns a spec's plain data, with the default fields of the recipe of its published data set.

    Fields present in the data are kept, also fields of an encoder without a name. A spec on other
    images is returned unchanged.
    """
    data = raw.get("data") if isinstance(raw, dict) else None
    recipe = RECIPES.get(str(data.get("kind")), {}) if isinstance(data, dict) else {}
    for path in DEFAULTS:
        section, field = path.split(".")
        given = raw.get(section, {}) if path in recipe else None
        if isinstance(given, dict):
            value, own = recipe[path], given.get(field, recipe[path])
            if isinstance(own, dict) and isinstance(value, dict) and "name" not in own:
                own = value | own
            raw = raw | {section: {**given, field: own}}
    return raw
