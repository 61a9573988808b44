"""Commands for training: train, sweep, demo, compare."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtcon_ray.base import paths
from mtcon_ray.cli import options
from mtcon_ray.cli.example_files import SYNTHETIC, example_file
from mtcon_ray.cluster.job_package import VERSIONS_VARIABLE, check_versions
from mtcon_ray.display.console import Console
from mtcon_ray.display.presentation import printable
from mtcon_ray.display.results_table import leaderboard_lines, winner_lines
from mtcon_ray.display.terminal import Terminal, say
from mtcon_ray.errors import SweepError
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.tracking.mlflow_server import tracking_uri, ui_command

if TYPE_CHECKING:
    from mtcon_ray.spec.run_spec import RunSpec

RETRY_FAILED = "--retry-failed"


def _checked_name(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> str | None:
    """Returns the name. Raises SweepError for an invalid name before anything is printed."""
    if name is not None:
        paths.sweep_folder(paths.DEFAULT_ROOT, name)
    return name


name_option = click.option(
    "--name",
    callback=_checked_name,
    help="Name of the sweep.  [default: <spec.name>-<n>]",
)
resume_option = click.option(
    "--resume", is_flag=True, help="Resume --name, or the newest of this spec."
)
retry_option = click.option(
    RETRY_FAILED, is_flag=True, help="Resume, and train failed trials again from their start."
)
continue_option = click.option(
    "--continue", "goes_on", is_flag=True,
    help="Start --name, or resume it if it exists; for services that restart a sweep.",
)  # fmt: skip


here_option = click.option(
    "--here", is_flag=True, help="Train one trial after another in this process, without Ray."
)


@click.command()
@options.spec_file
@options.overrides
@name_option
@resume_option
@options.root
@options.trust_tracking
def train(
    spec: Path, overrides: tuple[str, ...], name: str | None, resume: bool, root: str | None
) -> int:
    """Train once, as a sweep of one trial.

    The spec's search is left out. With one worker it runs in this process, without Ray.
    """

    def load() -> tuple["RunSpec", Path, bool]:
        run_spec = load_spec(spec, overrides, with_search=False)
        return run_spec, options.root_of(root, run_spec.storage.root), resume

    return run(load, name, once=True)


@click.command()
@options.spec_file
@options.overrides
@name_option
@resume_option
@retry_option
@continue_option
@here_option
@options.root
@options.trust_tracking
def sweep(spec: Path, **given: Any) -> int:
    """Run or resume a sweep and show its leaderboard."""
    return _sweep(spec, **given)


@click.command()
@options.overrides
@name_option
@resume_option
@options.root
@options.trust_tracking
def demo(**given: Any) -> int:
    """Run a temperature sweep on synthetic images.

    It takes some minutes and reads no files. `mtcon-ray init --synthetic` writes its spec.
    """
    return _sweep(example_file(SYNTHETIC), **given)


def _sweep(
    spec: Path,
    *,
    overrides: tuple[str, ...],
    name: str | None,
    root: str | None,
    resume: bool,
    retry_failed: bool = False,
    goes_on: bool = False,
    here: bool = False,
) -> int:
    def load() -> tuple["RunSpec", Path, bool]:
        run_spec = load_spec(spec, overrides)
        where = options.root_of(root, run_spec.storage.root)
        if goes_on:
            return run_spec, where, _is_there(where, name, run_spec.storage.mirror)
        return run_spec, where, resume or retry_failed

    return run(load, name, retry_failed=retry_failed, here=here)


def run(
    load: Callable[[], tuple["RunSpec", Path, bool]],
    name: str | None,
    *,
    retry_failed: bool = False,
    here: bool = False,
    once: bool = False,
) -> int:
    """Runs or resumes a sweep and shows its leaderboard. Returns the exit code.

    With `once` it trains once, as a sweep of one trial. `load` returns the spec, the root and
    whether the sweep is resumed, while the display runs.
    """
    session, terminal = options.session(), Terminal.of()
    with Console(terminal, quiet=session.quiet) as console:
        run_spec, where, resume = load()

        # Before imports that may fail with other versions of the packages.
        check_versions(os.environ.get(VERSIONS_VARIABLE))

        from mtcon_ray.sweep.run import run_sweep, train_once

        given: dict[str, Any] = {"root": where, "name": name, "callbacks": console}
        if once:
            results = train_once(run_spec, resume=resume, **given)
        else:
            results = run_sweep(
                run_spec, resume=resume, retry_failed=retry_failed, here=here, **given
            )
    lines = ["", *leaderboard_lines(results, columns=terminal.columns), "", *winner_lines(results)]
    lines.append(f"report: {paths.report_page(results.folder)}")
    lines.append(f"MLflow: {ui_command(tracking_uri(run_spec.tracking.uri, where))}")
    terminal.write(printable("\n".join([*lines, ""])))
    return 0 if results.winner else 1


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
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
    comparison = load_comparison(file, overrides, only)
    first = next(iter(comparison.specs.values()))
    where = options.root_of(root, first.storage.root)
    if only_plan:
        from mtcon_ray.comparison.stages import plan_stages, power_lines, stage_lines

        stages = list(plan_stages(comparison, where, options.cluster_view(None)))
        say("\n".join([*stage_lines(stages), *power_lines(comparison.claims, stages)]))
        return 0
    from mtcon_ray.comparison.run import run_comparison
    from mtcon_ray.comparison.summary import markdown

    def watch(title: str) -> Console:
        if not session.quiet:
            say(f"\n{title}")
        return Console(Terminal.of(), quiet=session.quiet)

    rows, folder = run_comparison(comparison, root=where, watch=watch, on_phase=session.say_phase)
    say(f"\n{markdown(rows, comparison.claims)}\ntable and picture: {folder}")
    return 0 if all(row.finished for row in rows) else 1


def _is_there(root: Path, name: str | None, mirror: str | None) -> bool:
    """Returns True if the sweep is below the root, after downloading it if it is mirrored."""
    if not name:
        raise SweepError("--continue needs --name, the name of the sweep to start or continue")
    if (paths.sweep_folder(root, name) / paths.SPEC_FILE).exists():
        return True
    if mirror is None:
        return False
    from mtcon_ray.sweep.mirror_objects import url_of
    from mtcon_ray.sweep.restore import is_mirrored, restore

    url = url_of(mirror, name)
    if there := is_mirrored(url):
        restore(url, root)
    return there
