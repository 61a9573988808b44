"""Description of a sweep in MLflow."""

import dataclasses
from pathlib import Path

from mtcon_ray.sweep.description import describe_sweep
from tests.display.conftest import make_sweep
from tests.recorded import plan_with


def test_an_ended_sweep_names_its_winner_its_commands_and_its_places(tmp_path: Path) -> None:
    results = make_sweep(tmp_path)
    assert results.winner
    text = describe_sweep(results, ended=True)
    assert f"{results.winner.params['method.temperature']:.4g} won with" in text
    assert "- Searched: method.temperature" in text
    spec = results.folder / "spec.yaml"
    assert f"\nmtcon-ray sweep {spec}\n" in text
    root = results.folder.parents[1]
    assert f"mtcon-ray sweep {spec} --name {results.folder.name} --root {root} --resume" in text
    for place in ("report/index.html", "checkpoints", "log"):
        assert f"`{results.folder / place}`" in text


def test_warnings_about_the_data_come_before_the_setup(tmp_path: Path) -> None:
    plan = plan_with(warnings=["1 image is missing"])
    results = dataclasses.replace(make_sweep(tmp_path), plan=plan)
    for ended in (True, False):
        before, warning, after = describe_sweep(results, ended).partition(
            "\n\n**Warning**: 1 image is missing\n\n"
        )
        assert "No result yet" in before or "network of epoch 20 of 20" in before
        assert warning
        assert after.startswith("- Method")


def test_names_are_no_markup(tmp_path: Path) -> None:
    """A class may have the name of an image on somebody's server."""
    plan = plan_with(warnings=["class ![x](http://h/i.png) <b>\n# of *one* image"])
    text = describe_sweep(dataclasses.replace(make_sweep(tmp_path), plan=plan), ended=False)
    escaped = r"class !\[x\](http://h/i.png) \<b> / \# of \*one\* image"
    assert f"**Warning**: {escaped}\n" in text


def test_a_sweep_under_way_claims_no_winner(tmp_path: Path) -> None:
    text = describe_sweep(make_sweep(tmp_path), ended=False)
    assert text.startswith("No result yet.")
    assert "won with" not in text
