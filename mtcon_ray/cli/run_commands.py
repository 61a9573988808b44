"""Commands for training: train, sweep, demo, compare."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mtcon_ray.base import paths
from mtcon_ray.cli import options
from mtcon_ray.cli.example_files import SYNTHETIC, example_file
from mtcon_ray.cluster.jobs import check_versions
from mtcon_ray.display.console import Console, Terminal, say
from mtcon_ray.display.presentation import printable
from mtcon_ray.display.results_table import leaderboard_lines, winner_lines
from mtcon_ray.errors import SweepError
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored import find_sweep, has_sweep
from mtcon_ray.spec.run_spec import RunSpec, load_spec
from mtcon_ray.tracking.mlflow_server import tracking_uri, ui_command

resume_option = click.option("--resume", is_flag=True, help="Resume --name, or this spec's newest.")


def starting(command: options.Command) -> options.Command:
    """Adds `--set`, `--name`, `--resume`, `--root` and `--trust-tracking`."""
    placed = options.root(options.trust_tracking(command))
    return options.overrides(options.sweep_name(resume_option(placed)))


@click.command()
@click.argument("spec", type=options.PATH, required=False)
@click.option(
    "--from", "earlier", default="", metavar="NAME|URL", callback=options.located,
    help="Train with the spec of this sweep and the values and seed of its winner.",
)  # fmt: skip
@starting
@options.take_over
def train(spec: Path | None, earlier: str, **given: Any) -> int:
    """Train once, as a sweep of one trial.

    The spec's search is checked and not used. With one worker it runs in this process, without Ray.
    """
    if (spec is None) != bool(earlier):
        raise click.UsageError("give either SPEC or --from NAME")
    begun = spec or load_sweep(find_sweep(options.root_of(given["root"]), earlier))
    return _sweep(begun, once=True, **given)


@click.command()
@options.spec_file
@starting
@options.retry_failed
@click.option(
    "--continue", "goes_on", is_flag=True,
    help="Start --name, or resume it if it exists; for services that restart a sweep.",
)  # fmt: skip
@click.option(
    "--here", is_flag=True, help="Train one trial after another in this process, without Ray."
)
@options.take_over
def sweep(spec: Path, **given: Any) -> int:
    """Run or resume a sweep and show its leaderboard."""
    return _sweep(spec, **given)


@click.command()
@starting
def demo(**given: Any) -> int:
    """Run a temperature sweep on synthetic images.

    It takes some minutes and reads no files. `mtcon-ray init --synthetic` writes its spec.
    """
    return _sweep(example_file(SYNTHETIC), **given)


def _sweep(
    spec: Path | SweepResults, *, overrides: tuple[str, ...], root: str | None, **given: Any
) -> int:
    if (goes_on := given.pop("goes_on", False)) and not given["name"]:
        raise SweepError("--continue needs --name, the name of the sweep to start or continue")
    run_spec = load_spec(spec, overrides) if isinstance(spec, Path) else spec.winner_spec(overrides)
    where = options.root_of(root, run_spec.storage)
    again = given["resume"] or given.get("retry_failed", False)
    given["resume"] = has_sweep(paths.sweep_folder(where, given["name"])) if goes_on else again
    return run(run_spec, where, **given)


def run(spec: RunSpec, root: Path, *, once: bool = False, **given: Any) -> int:
    """Runs or resumes a sweep and shows its leaderboard. Returns the exit code.

    With `once` it trains once, as a sweep of one trial. `given` are options of `run_sweep`.
    """
    with options.display() as console:
        # Before imports that may fail with other versions of the packages.
        check_versions()

        from mtcon_ray.sweep.run import run_sweep, train_once

        start: Callable[..., SweepResults] = train_once if once else run_sweep
        results = start(spec, root=root, callbacks=console, **given)
    terminal = Terminal()
    lines = ["", *leaderboard_lines(results, columns=terminal.columns), "", *winner_lines(results)]
    lines.append(f"report: {results.folder / paths.REPORT_PAGE}")
    lines.append(f"MLflow: {ui_command(tracking_uri(spec.tracking.uri, root))}")
    terminal.write(printable("\n".join([*lines, ""])))
    return 0 if results.winner else 1


@click.command()
@click.argument("file", type=options.PATH)
@options.overrides
@click.option("--only", multiple=True, metavar="TITLE", help="Train one system; may be repeated.")
@click.option("--plan", "only_plan", is_flag=True, help="Print all sweeps; start nothing.")
@options.root
@options.trust_tracking
def compare(
    file: Path, overrides: tuple[str, ...], only: tuple[str, ...], only_plan: bool, root: str | None
) -> int:
    """Train the systems of a comparison's FILE with one budget.

    Started again, it resumes.
    """
    from mtcon_ray.comparison.comparison_spec import load_comparison

    session = options.session()
    compared = load_comparison(file, overrides, only)
    for note in compared.notes:
        session.say(f"note: {note}", err=True)
    where = options.root_of(root, next(iter(compared.specs.values())).storage)
    if only_plan:
        from mtcon_ray.comparison.stages import plan_stages, power_lines, stage_lines

        stages = list(plan_stages(compared, where, options.cluster_view(None)))
        say("\n".join([*stage_lines(stages), *power_lines(compared.claims, stages)]))
        return 0
    from mtcon_ray.comparison import run, summary

    def watch(title: str) -> Console:
        session.say(f"\n{title}")
        return options.display()

    rows, folder = run.run_comparison(compared, root=where, watch=watch, on_phase=session.say_phase)
    say(f"\n{summary.markdown(rows, compared.claims)}\ntable and picture: {folder}")
    return 0 if all(row.finished for row in rows) else 1
