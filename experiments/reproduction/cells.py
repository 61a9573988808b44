"""Cells of the matrix of trainings: a system on a data set, named in the papers' terms.

A cell is a sweep over seeds. Its name and its spec follow from the cell and the setting alone. All
tables and figures with the same training therefore find the same sweep.
"""

import math
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from experiments.reproduction.budgets import Budget
from experiments.reproduction.data import DATA_SETS, DataChoice, Source
from mtcon_ray.comparison.tuning import TuneSpec, Tuning, make_tuning
from mtcon_ray.spec.recipes import RECIPES
from mtcon_ray.spec.run_spec import RunSpec, apply_override, parse_spec, set_value


@dataclass(frozen=True)
class System:
    """A method of the papers: title, family (a key of `Budget.families`), and `method` section.

    A system with `per_label` is trained on a single label, named in the cell.
    """

    title: str
    family: str
    method: Mapping[str, Any]
    changes: Mapping[str, Any] = field(default_factory=dict)
    per_label: bool = False
    has_seeds: bool = True


# Characters in the name of a spec. The tuning sweep appends "-tune".
MAX_NAME = 76
# Tuning has a training's epochs divided by this.
TUNED_SHARE = 3

# Views of photographs with colour labels keep most of the colour. Self-supervised systems see no
# labels, and need the stronger views of their recipes.
KEEP_COLOURS = {
    "crop_scale": [0.4, 1.0],
    "brightness": 0.2,
    "contrast": 0.2,
    "hue": 0.02,
    "saturation": 0.2,
    "grayscale": 0.0,
}
# Numbers of CCN's embedding, on which its heads and probes are.
CCN_EMBEDDING = 128
# The temperature of MSCon and MTCon, and of their SimCLR and SupCon.
TEMPERATURE = 0.1


def _contrastive(title: str, **method: Any) -> System:
    return System(title, "contrastive", {"temperature": TEMPERATURE, **method})


# AMCL's augmentations, by their number: random crops, then also blur and loss of colour, then also
# changed colours and flips.
CROPS = {"crop_scale": (0.08, 1.0), "flip": 0.0, "jitter": 0.0, "grayscale": 0.0, "blur": 0.0}
BLURS = CROPS | {"grayscale": 0.2, "blur": 0.5}
JITTERS = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
AUGMENTATIONS = {1: CROPS, 3: BLURS, 5: BLURS | JITTERS | {"flip": 0.5, "jitter": 0.8}}


def _augmented(count: int) -> dict[str, System]:
    """Returns SimCLR and AMCL with this number of augmentations, as AMCL's poster compares them.

    AMCL has the authors' hundred negatives and clipping: with one negative its heads collapse. Its
    lowest temperature is 0.05, except at the budget `paper`: the paper's 1e-5 gives losses of 1e5.
    """
    views = {f"views.{name}": value for name, value in AUGMENTATIONS[count].items()}
    amcl = {"name": "amcl", "form": "simclr", "tau_min": 0.05, "top_k": 100}
    text = f"{count} augmentation{'s' if count > 1 else ''}"
    clipped = {**views, "train.max_grad_norm": 1.0}
    return {
        f"simclr-{count}": System(
            f"SimCLR, {text}", "self_supervised", {"name": "simclr", "temperature": 0.5}, views
        ),
        f"amcl-{count}": System(f"AMCL, {text}", "self_supervised", amcl, clipped),
    }


SYSTEMS: Mapping[str, System] = {
    "handcrafted": System(
        "Handcrafted features",
        "none",
        {"name": "none"},
        {"model.encoder": {"name": "handcrafted"}},
        has_seeds=False,
    ),
    "untrained": System("Untrained encoder", "none", {"name": "none"}),
    # Learned weights divide the encoder's steps by about the loss. At the same learning rate, a
    # comparison with equal weights would compare the step sizes.
    "mtcon": _contrastive(
        "MTCon, learned weights", name="mtcon", weighting="learned", normalise_weights=True
    ),
    "mtcon-printed": _contrastive(
        "MTCon, learned weights as printed", name="mtcon", weighting="learned"
    ),
    "mtcon-equal": _contrastive("MTCon, equal weights", name="mtcon", weighting="equal"),
    "supcon": System(
        "SupCon", "contrastive", {"name": "supcon", "temperature": TEMPERATURE}, per_label=True
    ),
    "simclr": System("SimCLR", "self_supervised", {"name": "simclr", "temperature": TEMPERATURE}),
    "xent": System("XEnt", "xent", {"name": "xent"}, per_label=True),
    "xent-multi": System("XEnt multi-task", "xent", {"name": "xent"}),
    "xent-kendall": System(
        "XEnt multi-task, Kendall's weights", "xent", {"name": "xent", "weighting": "kendall"}
    ),
    "csn": System("CSN", "triplet", {"name": "csn"}),
    "scenet": System("SCE-Net", "triplet", {"name": "scenet"}),
    "multisupcon-0.1": _contrastive("MultiSupCon, c = 0.1", name="multisupcon", threshold=0.1),
    "multisupcon-0.3": _contrastive("MultiSupCon, c = 0.3", name="multisupcon", threshold=0.3),
    "multisupcon-0.5": _contrastive("MultiSupCon, c = 0.5", name="multisupcon", threshold=0.5),
    # SupCon on label sets: positives have exactly the same set.
    "multisupcon-1.0": _contrastive("SupCon on equal sets", name="multisupcon", threshold=1.0),
    **{name: each for count in AUGMENTATIONS for name, each in _augmented(count).items()},
}

# Systems without training. An encoder that is not better has learned little.
BASELINES = ("handcrafted", "untrained")


@dataclass(frozen=True)
class Cell:
    """A training in the papers' terms. `held_out` and `noise` also name labels as in the papers.

    `system` is a key of SYSTEMS, followed by ":label" for a system with a single label. `held_out`
    is a task held out in addition to the data set's own held-out labels. `noise` has label and
    share of wrong labels. `changes` has dotted paths of the spec with their values. `own_data` has
    fields of the section `data` for the paper's own images, which stand-ins do not have.
    """

    data: str
    system: str
    held_out: str | None = None
    noise: tuple[tuple[str, float], ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()
    own_data: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """The key of the cell's system in SYSTEMS."""
        return self.system.partition(":")[0]

    @property
    def is_self_supervised(self) -> bool:
        """True if the system sees no labels."""
        return SYSTEMS[self.key].family == "self_supervised"

    @property
    def label(self) -> str | None:
        """The single label for training the system, or None."""
        return self.system.partition(":")[2] or None

    @property
    def title(self) -> str:
        """The readers' name of the system, without its data set."""
        title = SYSTEMS[self.key].title
        title = f"{title} on {self.label}" if self.label else title
        noise = [f"{share:g} of {label} wrong" for label, share in self.noise]
        changed = [f"{path.rpartition('.')[2]} {value}" for path, value in self.changes]
        return ", ".join([title, *noise, *changed])

    @property
    def slug(self) -> str:
        """Name of the cell within a source and budget: letters, digits, `.`, `_` and `-`."""
        parts = [self.data, *([f"no-{self.held_out}"] if self.held_out else [])]
        parts += [self.system, *(f"noise-{label}-{share:g}" for label, share in self.noise)]
        parts += [f"{path.rpartition('.')[2]}-{value}" for path, value in self.changes]
        return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Labels for training, or for a choice among them, as the papers name them."""
        return tuple(task for task in DATA_SETS[self.data].tasks if task != self.held_out)

    @property
    def held_out_labels(self) -> tuple[str, ...]:
        """Labels held out from the training."""
        own = DATA_SETS[self.data].held_out
        return (*([self.held_out] if self.held_out else []), *own)


@dataclass(frozen=True)
class Setting:
    """The settings for turning a cell into a spec: budget, images, root, `path=value` overrides."""

    budget: Budget
    choice: DataChoice
    root: Path
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of a reproduction with this setting, the same after a resume."""
        return "-".join(filter(None, (self.budget.name, self.choice.only)))

    @property
    def folder(self) -> Path:
        """Folder of the tables, figures and report."""
        return self.root / "reproductions" / self.name

    @cached_property
    def _sources(self) -> dict[str, Source]:
        return {}

    def source(self, data: str) -> Source:
        """Returns the images for a data set. Raises MissingImagesError if they are missing."""
        if data not in self._sources:
            self._sources[data] = self.choice.source(data, self.budget.num_items)
        return self._sources[data]

    def name_of(self, cell: Cell) -> str:
        """Returns the name of a cell's sweep. A digest replaces the end of a long name."""
        own = [f"{name}-{value}" for name, value in self._own_data(cell).items()]
        choice = self.source(cell.data).choice
        name = "-".join([self.budget.name, choice, cell.slug, *own])
        if len(name) <= MAX_NAME:
            return name
        digest = sha256(name.encode()).hexdigest()[:8]
        return f"{name[: MAX_NAME - len(digest) - 1]}-{digest}"

    def _own_data(self, cell: Cell) -> dict[str, Any]:
        return {} if self.source(cell.data).is_stand_in else dict(cell.own_data)

    def spec_of(self, cell: Cell) -> RunSpec:
        """Returns the spec of a cell's sweep over seeds.

        Raises MissingImagesError if the chosen images are missing, SpecError for a value refused by
        the spec.
        """
        return parse_spec(self._raw(cell), where=f"{cell.data}, {cell.title}")

    def tuning_of(self, cell: Cell) -> Tuning | None:
        """Returns the sweep for choosing a cell's learning rate on val, or None without tuning.

        A cell with its own rate, or with an override of the rate, is not tuned. Raises as `spec_of`
        does.
        """
        rates = self.budget.rates.get(SYSTEMS[cell.key].family, ())
        given = {*dict(cell.changes), *(each.partition("=")[0].strip() for each in self.overrides)}
        if not rates or "train.lr" in given:
            return None
        raw = self._raw(cell)
        epochs = math.ceil(raw["train"]["epochs"] / TUNED_SHARE)
        tuned: dict[str, Any] = {
            "epochs": epochs,
            "space": {"train.lr": {"grid": list(rates)}},
            "sampler": "grid",
            "scheduler": {"name": "none"},
            "objective": raw["search"].get("objective"),
        }
        raw["seed"], raw["evaluate"]["every"] = 0, epochs
        where = f"{cell.data}, {cell.title}"
        return make_tuning(TuneSpec.model_validate(tuned), {}, raw, where=where, folder=self.root)

    def _raw(self, cell: Cell) -> dict[str, Any]:
        source, system = self.source(cell.data), SYSTEMS[cell.key]
        column, budget = source.columns, self.budget
        method = {**system.method, **({"task": column[cell.label]} if cell.label else {})}
        seeds = budget.seeds if system.has_seeds else 1
        raw: dict[str, Any] = {
            "name": self.name_of(cell),
            # Tuning has the preceding seed.
            "seed": int(bool(budget.rates)),
            "data": {
                **deepcopy(dict(source.data)),
                **self._own_data(cell),
                "tasks": [column[label] for label in cell.tasks],
                "held_out": [column[label] for label in cell.held_out_labels],
            },
            "method": method,
            "search": {"sampler": "grid", "repeats": seeds, "scheduler": {"name": "none"}},
        }
        if cell.label:
            # A network of one label is tuned, and its epoch selected, by this label alone.
            raw["search"]["objective"] = column[cell.label]
        recipe = recipe_of(cell.data) if budget.recipes else {}
        values = {**budget.base, **recipe}
        for name in (cell.data, system.family, system.method["name"]):
            values |= budget.families.get(name, {})
        for path, value in (values | dict(system.changes) | dict(cell.changes)).items():
            set_value(raw, path, deepcopy(value))
        # Only CCN's table has own data, and only CCN states the width of an embedding. The triplet
        # network has its own embedding.
        if budget.recipes and self._own_data(cell) and system.family not in ("triplet", "none"):
            set_value(raw, "model.embedding_dim", CCN_EMBEDDING)
        for label, share in cell.noise:
            raw["data"].setdefault("label_noise", {})[column[label]] = share
        if source.choice == "photos" and not cell.is_self_supervised:
            raw["views"] = {**KEEP_COLOURS, **raw["views"]}
        for override in self.overrides:
            apply_override(raw, override)
        # A training shorter than the interval of its probes is probed at its end.
        probed, epochs = raw["evaluate"]["every"], raw["train"]["epochs"]
        raw["evaluate"]["every"] = min(probed, epochs)
        return raw


def recipe_of(data: str) -> dict[str, Any]:
    """Returns the fields stated in a data set's paper, without its method's fields."""
    recipe = RECIPES[DATA_SETS[data].kind]
    return {path: v for path, v in recipe.items() if path.partition(".")[0] != "method"}


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """Returns each cell once, in order of its first appearance."""
    return list(dict.fromkeys(cells))
