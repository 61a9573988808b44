"""The description of a sweep's run in MLflow, in Markdown."""

import re
import shlex

from mtcon_ray.base.paths import SPEC_FILE, shown
from mtcon_ray.display.page import headline
from mtcon_ray.display.plan_text import setup
from mtcon_ray.display.presentation import commands, one_line
from mtcon_ray.records.results import SweepResults


def describe_sweep(results: SweepResults, ended: bool) -> str:
    """Returns a sweep's note: setup, winner, and commands to repeat and resume it."""
    root = shlex.quote(shown(results.folder.parents[1]))
    resume = f"mtcon-ray resume {results.name} --root {root}"
    rows = setup(results.spec, results.plan) if results.plan else []
    parts = [
        _escaped(" ".join(headline(results))) if ended else "No result yet.",
        *(f"**Warning**: {_escaped(text)}" for text in results.plan_warnings),
        "\n".join(f"- {name}: {_escaped(text)}" for name, text in rows),
        *(
            f"{what}:\n{_code(line)}"
            for what, line in commands(results, results.folder / SPEC_FILE)
        ),
        f"To continue after a stop:\n{_code(resume)}",
    ]
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Returns text for Markdown: a class may have the name of an image on somebody's server."""
    return re.sub(r"([\\`*_\[\]<&~#|])", r"\\\1", one_line(text))


def _code(line: str) -> str:
    return f"\n```sh\n{line}\n```"
