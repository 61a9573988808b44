"""Description of a sweep in MLflow."""

import dataclasses
from pathlib import Path

from mtcon_ray.sweep.description import describe_sweep
from tests.display.conftest import make_sweep
from tests.some import some


def test_an_ended_sweep_names_its_winner_and_its_commands(tmp_path: Path) -> None:
    results = make_sweep(tmp_path)
    text = describe_sweep(results, ended=True)
    winner = results.required_winner().params["method.temperature"]
    spec, root = results.folder / "spec.yaml", results.folder.parents[1]
    for part in (
        f"{winner:.4g} won with",
        "- searched: method.temperature (grid 0.03, 0.05",
        f"\nmtcon-ray sweep {spec}\n",
        f"\nmtcon-ray resume {results.name} --root {root}\n",
    ):
        assert part in text


def test_warnings_come_before_the_setup_and_names_are_no_markup(tmp_path: Path) -> None:
    """A class may have the name of an image on somebody's server."""
    results = make_sweep(tmp_path)
    warnings = ("class ![x](http://h/i.png) <b>\n# of *one* image",)
    plan = some(results.plan).model_copy(update={"warnings": warnings})
    text = describe_sweep(dataclasses.replace(results, plan=plan), ended=False)
    escaped = r"class !\[x\](http://h/i.png) \<b> / \# of \*one\* image"
    assert text.startswith(f"No result yet.\n\n**Warning**: {escaped}\n\n- trials")
    assert "won with" not in text
