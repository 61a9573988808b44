"""Commands on results: evaluate, report, list, status, best."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from rich.filesize import decimal

from mtcon_ray.base import paths
from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.root_files import read_small
from mtcon_ray.base.status import Status
from mtcon_ray.cli import options
from mtcon_ray.cli.job_commands import address_option, list_jobs
from mtcon_ray.data.disk import whole_file
from mtcon_ray.display import presentation as show
from mtcon_ray.display.console import Terminal, say, warn
from mtcon_ray.display.results_table import leaderboard_lines, trial_record, winner_lines
from mtcon_ray.display.tables import Table
from mtcon_ray.errors import MtconError
from mtcon_ray.records.results import JOB, SweepResults, first_tags, load_sweep
from mtcon_ray.records.stored import find_network, find_sweep, summaries
from mtcon_ray.tracking.mlflow_server import ui_command
from mtcon_ray.version import __version__

INDENT = "  "


@click.command()
@options.trained_model
@options.overrides
@options.root_folder
@options.as_json
def evaluate(model: str, overrides: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Measure test and held-out scores of a model."""
    from mtcon_ray.export.trained_network import evaluate_checkpoint

    path, _ = find_network(model, root)
    with options.display(quiet=as_json) as console:
        values = evaluate_checkpoint(path, root=root, overrides=overrides, callbacks=console)
    lines = (f"{key:<40} {values[key]:.4f}" for key in sorted(values))
    options.tell(values, lines, as_json=as_json)


@click.command()
@options.recorded
@click.option("--views", is_flag=True, help="Show augmented views of some images of the data.")
def report(name: str, root: Path, views: bool) -> None:
    """Build a sweep's report, finished or not; print its path."""
    from mtcon_ray.display.build import build_report

    results = _with_predictions(root, name)
    ui = ui_command(options.uri_of(results.spec, root))
    say(build_report(results, ui_command=ui, with_views=views))


@click.command("list")
@options.root_folder
@options.as_json
@click.option("--cluster", is_flag=True, help="List the jobs of a cluster instead, oldest first.")
@address_option
def list_names(root: Path, as_json: bool, cluster: bool, address: str | None) -> None:
    """List sweeps, or the jobs of a cluster.

    The size is that of a sweep's record and networks. `clean` shows the whole folder's.
    """
    if cluster or address:
        return list_jobs(address, as_json=as_json)
    found = _overviews(summaries(root))
    table = {
        "name": [each["name"] for each in found],
        "began": [(each["began"] or show.NOTHING)[:10] for each in found],
        "data": [each["data"] or show.NOTHING for each in found],
        "size": [_size_text(each["bytes"]) for each in found],
        "state": [each["state"] for each in found],
        "done": [f"{each['num_done']}/{each['num_trials']}" for each in found],
        "metric": [each["metric"] or show.NOTHING for each in found],
        "value": [show.accuracy_text(each["value"]) for each in found],
        "best": [show.configuration_text(p) if (p := each["params"]) else "" for each in found],
    }
    lines = Table.of(table).lines(Terminal().columns)
    if not found:
        lines = [f"nothing under {paths.shown(root)} yet"]
    options.tell(found, lines, as_json=as_json)


@click.command()
@options.recorded
@click.argument("other", required=False)
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print a table with all metrics, as CSV.")
def status(name: str, other: str | None, root: Path, as_json: bool, as_csv: bool) -> None:
    """Show a sweep's state and its trials, or compare two sweeps.

    With OTHER it shows the values and test scores of both winners, the differences of the scores,
    and the fields in which the specs differ.
    """
    if as_csv + as_json + bool(other) > 1:
        raise click.UsageError("give at most one of --json, --csv and a second sweep")
    if other:
        from mtcon_ray.comparison.side_by_side import side_by_side

        place, second = options.place_of(other)
        pair = _with_predictions(root, name), _with_predictions(place or root, second)
        for line in (*map(_state_line, pair), *side_by_side(pair, Terminal().columns)):
            say(line)
        return
    results = _loaded(paths.find_folder(summaries(root, name), name))
    if as_csv:
        return say(show.csv_text(results.to_frame()).rstrip())
    name, state, total = results.name, _state(results), results.num_trials
    # Only the record tells which networks are on the disk.
    trials = [trial_record(results, trial) for trial in results.trials if as_json]
    record = {"name": name, "state": state, "num_trials": total, "trials": trials}
    options.tell(record, _status_lines(results, state), as_json=as_json)


def _state_line(results: SweepResults) -> str:
    trials = f"{len(results.trials)} of {results.num_trials} trials started"
    return f"{results.name}: {_state(results)}, {trials}"


def _status_lines(results: SweepResults, state: str) -> Iterator[str]:
    yield _state_line(results)
    if state != "running" and (reason := results.status[1]):
        yield f"ended early: {reason}"
    columns = Terminal().columns
    lines = [show.hanging(f"warning: {text}") for text in results.plan_warnings]
    lines += leaderboard_lines(results, limit=None, columns=columns and columns - len(INDENT))
    yield from (INDENT + line for line in lines)
    if state in ("interrupted", "stopped"):
        root = None if JOB in first_tags(results.folder) else results.folder.parents[1]
        yield f"to continue: {show.resume_line(results.name, root)}"


@click.command()
@options.recorded
@options.as_json
def best(name: str, root: Path, as_json: bool) -> None:
    """Show a sweep's winner, its scores and its checkpoint."""
    results = _loaded(paths.find_folder(summaries(root, name), name))
    winner = results.required_winner()
    options.tell(trial_record(results, winner), winner_lines(results), as_json=as_json)


@dataclass(frozen=True)
class Overview:
    """A sweep as plain data. `value` is the winner's or the best so far, `params` are its."""

    name: str
    began: float | None  # Unix time, seconds
    data: str | None
    metric: str | None
    state: str
    num_done: int
    num_trials: int
    value: float | None
    params: dict[str, Any]


# By name, each with the `_stamp` of the files that it was read from.
OVERVIEWS = TypeAdapter(dict[str, tuple[str, Overview]])


def _overviews(root: Path) -> list[dict[str, Any]]:
    """Returns the overview of each sweep, and the bytes of its record and networks.

    A file of the cache has the overviews of sweeps that have not changed. Reading all event logs
    takes a second for 40 MB.
    """
    cache, known = paths.cache_folder(root) / "list.json", {}
    with suppress(OSError, ValueError, MtconError):
        known = OVERVIEWS.validate_json(read_small(cache))
    found, rows = {}, []
    for folder in paths.list_folders(root):
        stamp, size, (of, facts) = "", None, known.get(folder.name, ("", None))
        with suppress(OSError, MtconError):  # of which `_overview` tells
            stamp = "" if is_driven(folder) else _stamp(folder)
            size = None if paths.stored_url(folder) else _size(folder)
        if facts is None or of != stamp:
            facts = _overview(folder)
        if facts.data and stamp:
            found[folder.name] = stamp, facts
        began = facts.began and datetime.fromtimestamp(facts.began).isoformat(" ", "seconds")
        rows.append({**vars(facts), "began": began, "bytes": size if facts.data else None})
    if found != known:
        with suppress(OSError, ValueError, MtconError), whole_file(cache) as file:
            file.write(OVERVIEWS.dump_json(found))
    return rows


def _stamp(folder: Path) -> str:
    """Returns a text that differs after each change of a sweep's record, or of the version."""
    files = (folder / paths.SPEC_FILE, folder / paths.PLAN_FILE, paths.event_file(folder))
    found = [file.stat() for file in files if file.exists()]
    return f"{__version__} {[(each.st_size, each.st_mtime_ns) for each in found]}"


def _overview(folder: Path) -> Overview:
    """Returns the overview of a sweep. A broken sweep has its error as its state."""
    began = data = metric = None
    try:
        results = load_sweep(folder)
        state, trials, total = _state(results), results.trials, results.num_trials
        valued = [t for t in trials if t.value is not None]
        best = results.winner or max(valued, key=lambda t: t.value or 0, default=None)
        time = results.events[0].time_ms / 1000 if results.events else folder.stat().st_mtime
        began = datetime.fromtimestamp(time).timestamp()  # refuses a time in no year
        data, metric = results.spec.data.kind, results.labels.objective
    except (MtconError, OSError, ValueError, OverflowError) as error:
        state, trials, total, best = f"unreadable: {error}", (), 0, None
    done, value = sum(t.status.is_final for t in trials), best.value if best else None
    params = best.params if best else {}
    return Overview(folder.name, began, data, metric, state, done, total, value, params)


def _size_text(size: int | None) -> str:
    return show.NOTHING if size is None else decimal(size, precision=0, separator="")


def _size(folder: Path) -> int:
    """Returns the bytes of a sweep's files, without the trees of Ray Tune and the report.

    Reading each size there would take longer than reading the record.
    """
    total = 0
    for file in chain(folder.iterdir(), folder.glob("checkpoints/*/*")):
        with suppress(OSError):  # a running sweep may have removed it
            total += 0 if file.is_dir() else file.lstat().st_size
    return total


def _state(results: SweepResults) -> str:
    """Returns running, finished, failed, interrupted, or stopped if its process was killed."""
    if is_driven(results.folder):
        return "running"
    status, _ = results.status
    return "stopped" if status == Status.RUNNING else status.words


def _with_predictions(root: Path, name: str) -> SweepResults:
    return _loaded(find_sweep(root, name, [paths.PREDICTIONS_FILE]))


def _loaded(folder: Path) -> SweepResults:
    """Returns a sweep's results. Prints what is missing from its event log to standard error."""
    results = load_sweep(folder)
    for text in results.lost:
        warn(text)
    return results
