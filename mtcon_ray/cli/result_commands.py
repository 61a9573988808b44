"""Commands that read results: evaluate, report, list, status, best."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from mtcon_ray.cli.options import Session, as_json, name, overrides, root, session
from mtcon_ray.cli.terminal import Terminal, say
from mtcon_ray.errors import MtconError, SweepError
from mtcon_ray.paths import choose_root, find_folder, journal_file, sweep_folder, sweeps_folder

INDENT = "  "


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@overrides
@root
@as_json
@session
def evaluate(
    session: Session,
    checkpoint: Path,
    overrides: tuple[str, ...],
    root: str | None,
    as_json: bool,
) -> None:
    """Measure the test and held-out scores of a checkpoint's encoder."""
    from mtcon_ray.cli.console import Console
    from mtcon_ray.evaluate import evaluate_checkpoint

    with Console(Terminal.of(), quiet=session.quiet or as_json) as console:
        values = evaluate_checkpoint(
            checkpoint, root=choose_root(root), overrides=overrides, callbacks=console
        )
    if as_json:
        say(json.dumps(values, indent=1))
        return
    for key in sorted(values):
        say(f"{key:<40} {values[key]:.4f}")


@click.command()
@name
@root
@session
def report(session: Session, name: str, root: str | None) -> None:
    """Build a sweep's report again, also while it runs, and print its path."""
    from mtcon_ray.report.build import build_report
    from mtcon_ray.results import load_sweep
    from mtcon_ray.sweep.study import importances, read_study
    from mtcon_ray.tracking.mlflow_server import tracking_uri, ui_command

    where = choose_root(root)
    folder = _sweep_folder(where, name)
    results = load_sweep(folder)
    uri = tracking_uri(results.spec.tracking.uri, os.environ.get("MLFLOW_TRACKING_URI"), where)
    shares = importances(read_study(journal_file(folder), folder.name))
    say(build_report(results, shares, ui_command=ui_command(uri)))


@click.command("list")
@root
@as_json
def list_names(root: str | None, as_json: bool) -> None:
    """List sweeps and single trainings."""
    from mtcon_ray.cli.sweep_list import overviews
    from mtcon_ray.cli.tables import table_lines
    from mtcon_ray.presentation import NOTHING, accuracy_text, configuration_text

    where = choose_root(root)
    found = overviews(where)
    if as_json:
        say(json.dumps([asdict(overview) for overview in found], indent=1))
        return
    if not found:
        say(f"nothing under {where} yet")
        return
    rows = [
        [
            o.name,
            o.kind,
            o.state,
            f"{o.num_done}/{o.num_trials}",
            accuracy_text(o.value),
            str(o.model_epoch or NOTHING),
            configuration_text(o.params) if o.params else "",
        ]
        for o in found
    ]
    header = ["name", "kind", "state", "done", "value", "epoch", "best"]
    columns = Terminal.of().columns
    for line in table_lines(
        header, rows, wrapped=[header.index("state"), header.index("best")], columns=columns
    ):
        say(line)


@click.command()
@name
@root
@as_json
def status(name: str, root: str | None, as_json: bool) -> None:
    """Show all trials of a sweep, or the state of a single training."""
    from mtcon_ray.cli.results_table import leaderboard_lines, trial_record
    from mtcon_ray.cli.sweep_list import folder_state
    from mtcon_ray.results import load_single, load_sweep

    where = choose_root(root)
    folder = find_folder(where, name)
    is_sweep = folder.parent == sweeps_folder(where)
    results = load_sweep(folder) if is_sweep else load_single(folder)
    state = folder_state(folder)
    total = results.num_trials
    if as_json:
        trials = [trial_record(results, trial) for trial in results.trials]
        record = {"name": folder.name, "state": state, "num_trials": total, "trials": trials}
        say(json.dumps(record, indent=1))
        return
    say(f"{folder.name}: {state}, {len(results.trials)} of {total} trials started")
    for text in results.plan_warnings:
        say(f"{INDENT}warning: {text}")
    columns = Terminal.of().columns
    indented = None if columns is None else columns - len(INDENT)
    for line in leaderboard_lines(results, limit=None, columns=indented):
        say(f"{INDENT}{line}")
    if state in ("interrupted", "stopped"):
        from mtcon_ray.presentation import resume_line
        from mtcon_ray.results import was_submitted

        say(f"to go on: {resume_line(folder.name, submitted=was_submitted(folder))}")


@click.command()
@name
@root
@as_json
def best(name: str, root: str | None, as_json: bool) -> None:
    """Show a sweep's winner, its scores and the path of its checkpoint."""
    from mtcon_ray.cli.results_table import trial_record, winner_lines
    from mtcon_ray.results import load_sweep

    results = load_sweep(_sweep_folder(choose_root(root), name))
    if results.winner is None:
        raise MtconError(f"no trial of {name!r} has trained for its full budget yet")
    if as_json:
        say(json.dumps(trial_record(results, results.winner), indent=1))
        return
    for line in winner_lines(results):
        say(line)


def _sweep_folder(root: Path, name: str) -> Path:
    folder = find_folder(root, name)
    if folder.parent != sweeps_folder(root):
        raise SweepError(f"{name!r} must be a sweep, got a single training; see `mtcon-ray status`")
    return sweep_folder(root, folder.name)
