"""Budgets: the length of each training of the matrix, and the number of seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtcon_ray.comparison.claims import MIN_SEEDS


@dataclass(frozen=True)
class Budget:
    """A budget: dotted paths of a spec to values, for all trainings and for some of them.

    A key of `families` is a data set, a family of systems or the name of a method. An entry of a
    family replaces values of a data set's entry. An entry of a method replaces both.

    `num_items` limits photographs and synthetic images, None keeps all. A budget with `recipes`
    takes image size, encoder, batch size and epochs from the recipe of each data set. `rates` has
    the same number of learning rates for every family. Each system gets the best rate on val, after
    a third of its epochs. Without `rates` the rate in `families` is used.
    """

    name: str
    title: str
    seeds: int
    num_items: int | None
    base: Mapping[str, Any]
    families: Mapping[str, Mapping[str, Any]]
    recipes: bool = False
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def epochs_on(self, data: str) -> int:
        """Returns the epochs of a training, except for triplets and a data set's own recipe."""
        return int({**self.base, **self.families.get(data, {})}["train.epochs"])

    @property
    def is_pretrained(self) -> bool:
        """True if networks start from ImageNet, as in CCN, MSCon and MTCon."""
        return "weights" in self.base["model.encoder"]

    @property
    def judges(self) -> bool:
        """True if claims are judged: with too few seeds a result may be an accident."""
        return self.seeds >= MIN_SEEDS


SMALL_ENCODER = {"model.encoder": {"name": "small", "width": 16}, "model.head_dim": 32}
# Photographs and encoder of the small budget are from compare_methods.yaml. Only the rate is tuned,
# to keep the papers' temperature.
SMALL_RATES = {
    "contrastive": {"train.lr": 0.2},
    "self_supervised": {"train.lr": 0.2},
    "xent": {"train.lr": 0.05},
}
TUNED_RATES = {
    "contrastive": (0.025, 0.05, 0.1, 0.2, 0.4),
    "self_supervised": (0.025, 0.05, 0.1, 0.2, 0.4),
    "xent": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "triplet": (0.0003, 0.001, 0.003, 0.01, 0.03),
}
# The photographs of products, which stand for these data sets, are more than twice those of shoes.
# So half as many epochs have about as many steps, and as many views as the triplets' five epochs.
ON_PRODUCTS = {"train.epochs": 6, "evaluate.every": 2}
PRODUCTS = ("medic", "cub200_2011", "celeba_64", "stl10")
# MSCon keeps the cross-entropy network, and the code of CSN and SCE-Net the triplet network, of the
# best epoch on val. A probe in every fifth epoch takes a few percent of a training.
BEST_ON_VAL = {"evaluate.select": "best", "evaluate.every": 5}

BUDGETS = {
    budget.name: budget
    for budget in (
        Budget(
            "smoke",
            "seconds per training, to see that everything runs",
            seeds=1,
            num_items=500,
            base={
                "views.size": 16,
                "model.encoder": {"name": "small", "width": 4},
                "model.head_dim": 8,
                "train.epochs": 2,
                "train.batch_size": 32,
                "evaluate.every": 2,
                "evaluate.bootstrap": 100,
            },
            families={
                **SMALL_RATES,
                "triplet": {
                    "train.optimizer": "adam",
                    "train.lr": 0.001,
                    "method.num_triplets": 300,
                    "train.epochs": 1,
                    "evaluate.every": 1,
                },
            },
        ),
        Budget(
            "small",
            "a minute or two per training on one core",
            seeds=3,
            num_items=None,
            rates=TUNED_RATES,
            base={
                **SMALL_ENCODER,
                "views.size": 40,
                "train.epochs": 12,
                "train.batch_size": 64,
                "evaluate.every": 4,
            },
            families={
                **SMALL_RATES,
                **dict.fromkeys(PRODUCTS, ON_PRODUCTS),
                # An epoch of 10,000 triplets is 30,000 views, so five correspond to twelve of other
                # systems on shoes. The probed embedding is as wide as the encoder.
                "triplet": {
                    "model.head_dim": 128,
                    "train.optimizer": "adam",
                    "train.lr": 0.001,
                    "train.epochs": 5,
                    "evaluate.every": 5,
                },
            },
        ),
        Budget(
            "paper",
            "the papers' recipes, hours per training on a GPU",
            seeds=3,
            num_items=None,
            recipes=True,
            base={
                "views.size": 112,
                "model.encoder": {"name": "resnet18", "weights": "imagenet"},
                "model.head_dim": 32,
                "train.epochs": 200,
                "train.warmup_epochs": 0,
                "train.batch_size": 64,
                "train.lr": 0.05,
                "evaluate.every": 50,
                "resources.gpus": 1,
            },
            families={
                # A fifth of the rate of contrastive systems, as MSCon states.
                "xent": {"train.lr": 0.01, "views.num_views": 1, **BEST_ON_VAL},
                # The authors' code of CSN: 5e-5 * 0.985^epoch, embeddings of 64 numbers, and whole
                # images, mirrored at random.
                "triplet": {
                    "train.optimizer": "adam",
                    "train.lr": 5e-5,
                    "train.lr_schedule": "exponential",
                    "train.lr_final": 0.985**200,
                    "train.batch_size": 256,
                    "model.head_dim": 64,
                    "views.crop_scale": [1.0, 1.0],
                    "views.jitter": 0.0,
                    "views.grayscale": 0.0,
                    **BEST_ON_VAL,
                },
                # The batch size in the code of SCE-Net (Tan et al. 2019, arXiv:1908.08589).
                "scenet": {"train.batch_size": 96},
                "amcl": {"method.tau_min": 1e-5},
                # The second stage of MultiSupCon. Its code averages the loss over 40 labels at rate
                # 0.01, the probe sums over them.
                "celeba_64": {
                    "evaluate.probe": {
                        "solver": "sgd",
                        "epochs": 51,
                        "batch_size": 256,
                        "momentum": 0.9,
                        "lr": 0.01 / 40,
                        "augment": True,
                    }
                },
            },
        ),
    )
}
