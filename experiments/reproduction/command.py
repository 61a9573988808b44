"""Command line of the experiments: the same options for each file."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import Setting
from experiments.reproduction.data import CHOICES, DataChoice
from experiments.reproduction.experiment import Experiment
from experiments.reproduction.running import plan_lines, run
from experiments.reproduction.script import FOLDER, script
from mtcon_ray.cli import options as cli_options
from mtcon_ray.cli.main import run_script
from mtcon_ray.display.console import Console, Terminal, say


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for `make_setting`."""
    for option in (
        cli_options.root_folder,
        cli_options.overrides,
        click.option("--paper-data", type=FOLDER, help="Folder with the official downloads."),
        click.option("--photos", type=FOLDER, help="Folder with fashion_shoes, fashion_products."),
        click.option(
            "--data", type=click.Choice(CHOICES),
            help="Images of all data sets.  [default: the paper's where found, else photos, else "
            "synthetic]",
        ),
        click.option(
            "--budget", type=click.Choice(list(BUDGETS)), default="smoke", show_default=True,
            help="Length of each training.",
        ),
        click.option("--seeds", type=click.IntRange(1), help="Seeds of each system."),
    ):  # fmt: skip
        command = option(command)
    return command


plan_option = click.option(
    "--plan", "only_plan", is_flag=True,
    help="Print the sweeps and the differences that claims will detect; start nothing.",
)  # fmt: skip


def make_setting(
    budget: str,
    data: str | None,
    photos: Path | None,
    paper_data: Path | None,
    overrides: tuple[str, ...],
    root: Path,
    seeds: int | None = None,
) -> Setting:
    """Returns the setting of a command's options."""
    length = BUDGETS[budget]
    choice = DataChoice(data, photos, paper_data, root / "reproductions" / "subsets")
    return Setting(replace(length, seeds=seeds or length.seeds), choice, root, overrides)


def watch(title: str) -> Console:
    """Prints a sweep's title and returns its display."""
    session = cli_options.session()
    if not session.quiet:
        say(f"\n{title}")
    return Console(Terminal(), quiet=session.quiet)


def main(experiment: Experiment) -> None:
    """Runs an experiment by the arguments of the command line, and exits."""

    @plan_option
    @setting_options
    def act(only_plan: bool, **given: Any) -> int:
        setting = make_setting(**given)
        if only_plan:
            say("\n".join(plan_lines(experiment, setting, cli_options.cluster_view(None))))
            return 0
        done = run(experiment, setting, watch, cli_options.session().say_phase)
        say((done.folder / "table.md").read_text(encoding="utf-8"))
        say(f"table and pictures: {done.folder}")
        return 0 if any(cell.finished for cell in done.trained.values()) else 1

    run_script(script(experiment.name, experiment.claim, act), None, sys.argv[0])
