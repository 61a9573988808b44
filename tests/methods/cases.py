"""Cases of the methods' contract: specs of small trainings for every method and its variants."""

from pathlib import Path
from typing import Any, get_args

from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.spec.methods.self_supervised import Form
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.testing import BATCH_SIZE, TASKS, spec_of

# Values for required fields of methods, other than the name.
REQUIRED = {"task": "shape"}
# Values for optional fields: small networks and a short queue.
SMALL = {"dim": 16, "hidden": 16, "predictor_hidden": 8, "queue_size": 80}
# Further settings of methods, by the name that their tests have.
VARIANTS: dict[str, dict[str, Any]] = {
    # With the paper's tau_min of 1e-5, losses without negatives change by 1e4 from step to step.
    **{f"amcl-{form}": {"name": "amcl", "form": form, "tau_min": 0.05} for form in get_args(Form)},
    "simclr-heads": {"name": "simclr", "num_heads": 3},
    **{
        f"{name}-amcl": {"name": name, "contrast": "amcl", "tau_min": 0.05, "num_heads": 2}
        for name in ("can", "lgp")
    },
    "mtcon-equal": {"name": "mtcon", "weighting": "equal"},
    "mtcon-temperature": {"name": "mtcon", "weighting": "temperature"},
    "mtcon-mixed": {"name": "mtcon", "normalise_weights": True},
    "multisupcon-classes": {"name": "multisupcon", "sets_from": "classes"},
    "xent-kendall": {"name": "xent", "weighting": "kendall"},
}
# Tasks of both kinds in one training.
TASKS_OF = {"mtcon-mixed": (("shape", "attributes"),)}
# The method without training is tested in tests/methods/test_none.py.
TRAINED = [name for name in METHODS if METHODS[name].Spec.trains]
# Variants that add tensors to the state of their class, or use them elsewhere than in the weights.
STATEFUL = (
    *("amcl-moco", "amcl-simsiam", "amcl-barlow", "can-amcl", "lgp-amcl"),
    *("mtcon-temperature", "mtcon-mixed", "xent-kendall"),
)
# Names for tests of whole trainings: a variant without own state is trained as its class is.
WITH_OWN_STATE = [*TRAINED, *STATEFUL]
EACH = [*TRAINED, *VARIANTS]


def class_of(name: str) -> type[Method]:
    return METHODS[VARIANTS.get(name, {"name": name})["name"]]


def make_spec(name: str, *, steps: int = 10, **method: Any) -> RunSpec:
    """Returns the spec of two epochs of `steps` steps on synthetic images of 16 x 16 pixels."""
    fields = class_of(name).Spec.model_fields.items()
    required = {key: REQUIRED[key] for key, field in fields if field.is_required()}
    small = {key: SMALL[key] for key, _ in fields if key in SMALL}
    if "num_triplets" in class_of(name).Spec.model_fields:
        small["num_triplets"] = BATCH_SIZE * steps
    section = {**required, **small, **VARIANTS.get(name, {"name": name}), **method}
    return spec_of(section, steps=steps, tasks=TASKS_OF.get(name, TASKS))


def make_data(spec: RunSpec, store: Path) -> Dataset:
    return open_dataset(spec.data, view_size=16, store=store)
