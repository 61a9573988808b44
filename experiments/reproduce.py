"""All tables and figures of the papers, and a report with a verdict for each claim.

    python experiments/reproduce.py --all --budget smoke
    python experiments/reproduce.py --all --budget small --photos FOLDER
    python experiments/reproduce.py ccn_table1 mtcon_table1 --budget paper --paper-data FOLDER

A second start with the same options runs the missing trainings. Trainings for several tables or
figures run once. The report of all is index.html. The report of named files is chosen.html in the
same folder.

Cost: `smoke` takes a quarter of an hour on 2 cores, on synthetic images. `small` takes an estimated
fourteen hours, a third of them for five learning rates per system.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from experiments.reproduction.command import (
    make_setting,
    plan_option,
    setting_options,
    watch,
)
from experiments.reproduction.experiment import Done, Experiment
from experiments.reproduction.page import Failure, write_inconsistencies, write_page
from experiments.reproduction.running import plan_lines, run
from experiments.reproduction.script import script
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.cli import options as cli_options
from mtcon_ray.cli.main import run_script
from mtcon_ray.display.console import say
from mtcon_ray.errors import MtconError

# In the order of the report. Each name is a file of this folder with an EXPERIMENT.
NAMES = (
    "ccn_table1",
    "mscon_table1",
    "mscon_table2",
    "mscon_table3",
    "mscon_table4",
    "mtcon_table1",
    "mtcon_table2",
    "mtcon_table3",
    "mtcon_table4",
    "mtcon_table5",
    "mtcon_table6",
    "multisupcon_table1",
    "noise_figure",
    "temperature_figure",
    "epochs_figure",
    "temperature_disasters",
    "epochs_disasters",
    "batch_size_figure",
    "multisupcon_threshold",
    "multisupcon_umap",
    "tsne_heads",
    "amcl_histograms",
    "theorem1",
)


def load(name: str) -> Experiment:
    """Returns the experiment of a file of this folder."""
    found: Experiment = import_module(f"experiments.{name}").EXPERIMENT
    return found


@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Make all tables and figures.")
@plan_option
@setting_options
def reproduce(names: Sequence[str], everything: bool, only_plan: bool, **given: Any) -> int:
    """Runs the experiments. Returns the exit code, 1 if an experiment could not run."""
    unknown = [name for name in names if name not in NAMES]
    if unknown or everything == bool(names):
        problem = f"no experiment {unknown[0]!r}" if unknown else "give names or --all"
        raise click.UsageError(f"{problem}; experiments: {', '.join(NAMES)}")
    chosen = NAMES if everything else tuple(names)
    setting, session = make_setting(**given), cli_options.session()
    # A later run of some experiments must not overwrite the report of all.
    path = setting.folder / ("index.html" if everything else "chosen.html")
    done: list[Done] = []
    failures: list[Failure] = []
    for i, name in enumerate(chosen, 1):
        experiment = load(name)
        say(f"\n[{i} of {len(chosen)}] {experiment.title}")
        if only_plan:
            say("\n".join(plan_lines(experiment, setting, cli_options.cluster_view(None))))
            continue
        try:
            done.append(run(experiment, setting, watch, session.say_phase))
        except Interrupted:  # also an MtconError, but it must end the reproduction
            raise
        except MtconError as error:
            say(f"error: {error}", err=True)
            failures.append(Failure(experiment, str(error)))
        write_page(path, setting, done, failures, len(chosen))
    if only_plan:
        return 0
    write_inconsistencies(setting.folder / "inconsistencies.md")
    say(f"\nreport: {path}")
    return 1 if failures else 0


COMMAND = script("reproduce", "Make tables and figures of the papers, and a report.", reproduce)

if __name__ == "__main__":
    run_script(COMMAND, None, sys.argv[0])
