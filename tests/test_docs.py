"""What the documents show works: their Python runs, their methods are valid."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml

from mtcon_ray.methods import METHODS
from mtcon_ray.spec import parse_spec

METHODS_TEXT = (Path(__file__).parents[1] / "docs" / "methods.md").read_text(encoding="utf-8")
SNIPPETS = sorted(
    set(re.findall(r"`(\{name: (?:" + "|".join(METHODS) + r")\b[^`]*\})`", METHODS_TEXT))
)


def test_every_method_is_shown() -> None:
    assert {yaml.safe_load(s.split(" \\|")[0].rstrip("}") + "}")["name"] for s in SNIPPETS} == set(
        METHODS
    )


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_method_shown_is_valid(snippet: str) -> None:
    """Alternatives stand between bars."""
    raw: dict[str, Any] = {
        "name": "shown",
        "data": {"kind": "drawn", "tasks": ["shape", "colour"]},
        "model": {"encoder": {"name": "small"}},
    }
    if "can" in snippet or "lgp" in snippet:
        raw["model"] = {"encoder": {"name": "vit"}}
    if "multisupcon" in snippet:
        raw["data"]["tasks"] = ["attributes"]
    first, *others = snippet.strip("{}").replace("category", "shape").split(" \\| ")
    stem, _, last = first.rpartition(": ")
    for value in (last, *others):
        raw["method"] = yaml.safe_load("{" + f"{stem}: {value}" + "}")
        assert parse_spec(raw).method.name == raw["method"]["name"]


def test_the_losses_shown_run() -> None:
    code = METHODS_TEXT.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {
        "z": F.normalize(torch.randn(4, 2, 3), dim=2),
        "z1": F.normalize(torch.randn(4, 2, 3), dim=2),
        "z2": F.normalize(torch.randn(4, 2, 3), dim=2),
        "labels": torch.tensor([0, 0, 1, -1]),
        "label_sets": torch.tensor([[1, 0], [1, 1], [0, 0], [0, 1]]),
        "labels_by_task": {t: torch.tensor([0, 0, 1, -1]) for t in ("category", "colour")},
        "s": {t: torch.tensor(0.1) for t in ("category", "colour")},
    }
    exec(code, names)
    assert names["loss"].isfinite()
