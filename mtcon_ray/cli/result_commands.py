"""Commands on results: evaluate, report, list, status, best."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtcon_ray.base import paths
from mtcon_ray.cli import options
from mtcon_ray.cli.job_commands import address_option, list_jobs
from mtcon_ray.display.console import Console
from mtcon_ray.display.presentation import (
    NOTHING,
    accuracy_text,
    configuration_text,
    csv_text,
    hanging,
    resume_line,
)
from mtcon_ray.display.results_table import leaderboard_lines, trial_record, winner_lines
from mtcon_ray.display.sweep_list import overviews, sweep_state
from mtcon_ray.display.tables import Table
from mtcon_ray.display.terminal import Terminal, say, warn
from mtcon_ray.records.results import load_sweep, was_submitted
from mtcon_ray.records.stored import find_sweep, summaries
from mtcon_ray.tracking.mlflow_server import sync_command, ui_command
from mtcon_ray.tracking.sender import num_unsent

if TYPE_CHECKING:
    from mtcon_ray.records.results import SweepResults

INDENT = "  "


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@options.overrides
@options.root_folder
@options.as_json
def evaluate(checkpoint: Path, overrides: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Measure test and held-out scores of a checkpoint."""
    from mtcon_ray.export.trained_network import evaluate_checkpoint

    with Console(Terminal.of(), quiet=options.session().quiet or as_json) as console:
        values = evaluate_checkpoint(checkpoint, root=root, overrides=overrides, callbacks=console)
    if as_json:
        say(json.dumps(values, indent=1))
        return
    for key in sorted(values):
        say(f"{key:<40} {values[key]:.4f}")


@click.command()
@options.recorded
def report(name: str, root: Path) -> None:
    """Build a sweep's report, finished or not; print its path."""
    from mtcon_ray.display.build import build_report

    results = _loaded(find_sweep(root, name, [paths.PREDICTIONS_FILE]))
    say(build_report(results, ui_command=ui_command(options.uri_of(results.spec, root))))


@click.command("list")
@options.root_folder
@options.as_json
@click.option("--cluster", is_flag=True, help="List the jobs of a cluster instead, oldest first.")
@address_option
def list_names(root: Path, as_json: bool, cluster: bool, address: str | None) -> None:
    """List sweeps, or the jobs of a cluster."""
    if cluster or address:
        list_jobs(address, as_json=as_json)
        return

    found = overviews(summaries(root))
    if as_json:
        say(json.dumps(found, indent=1))
        return
    if not found:
        say(f"nothing under {paths.shown(root)} yet")
        return
    header = ["name", "state", "done", "value", "epoch", "best"]
    rows = []
    for each in found:
        done, epoch = (
            f"{each['num_done']}/{each['num_trials']}",
            str(each["model_epoch"] or NOTHING),
        )
        params = configuration_text(each["params"]) if each["params"] else ""
        value = accuracy_text(each["value"])
        rows.append([each["name"], each["state"], done, value, epoch, params])
    say("\n".join(Table(header, rows).lines(Terminal.of().columns)))


@click.command()
@options.recorded
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print a table with all metrics, as CSV.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="The best N trials only.")
def status(name: str, root: Path, as_json: bool, as_csv: bool, top: int | None) -> None:
    """Show a sweep's state and its trials."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv must not be given together")

    results = _loaded(folder := paths.find_folder(summaries(root, name), name))
    state, total = sweep_state(results), results.num_trials
    if as_csv:
        say(csv_text(results.to_frame().head(top or len(results.trials))).rstrip())
        return
    if as_json:
        chosen = results.ranked()[:top] if top else results.trials
        trials = [trial_record(results, trial) for trial in chosen]
        record = {"name": folder.name, "state": state, "num_trials": total, "trials": trials}
        say(json.dumps(record, indent=1))
        return
    say(f"{folder.name}: {state}, {len(results.trials)} of {total} trials started")
    if state != "running" and (reason := results.status[1]):
        say(f"ended early: {reason}")
    columns = Terminal.of().columns
    lines = [hanging(f"warning: {text}") for text in results.plan_warnings]
    lines += leaderboard_lines(results, limit=top, columns=columns and columns - len(INDENT))
    say("\n".join(INDENT + line for line in lines))
    # In a copy of a sweep nothing says what MLflow has.
    unknown = state == "running" or results.spec.tracking.offline or paths.stored_url(root)
    left = 0 if unknown else num_unsent(folder)
    if left:
        say(f"{left} events are not in MLflow yet: {sync_command(folder)}")
    if state in ("interrupted", "stopped"):
        say(f"to continue: {resume_line(folder.name, submitted=was_submitted(folder))}")


@click.command()
@options.recorded
@options.as_json
def best(name: str, root: Path, as_json: bool) -> None:
    """Show a sweep's winner, its scores and its checkpoint."""
    results = _loaded(paths.find_folder(summaries(root, name), name))
    winner = results.required_winner()
    if as_json:
        say(json.dumps(trial_record(results, winner), indent=1))
    else:
        say("\n".join(winner_lines(results)))


def _loaded(folder: Path) -> "SweepResults":
    """Returns a sweep's results. Prints what is missing from its event log to standard error."""
    results = load_sweep(folder)
    for text in results.lost:
        warn(text)
    return results
