"""Commands on results: export, audit, clean."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Literal, get_args

import click
from rich.filesize import decimal

from mtcon_ray.base import paths
from mtcon_ray.base.lock import ELSEWHERE_FILE, driver_lock, is_driven
from mtcon_ray.base.root_files import check_no_links, move, remove_folder
from mtcon_ray.cli import options
from mtcon_ray.data.objects import Objects
from mtcon_ray.display.console import say
from mtcon_ray.errors import SweepError, UserError
from mtcon_ray.records.claim import Claim
from mtcon_ray.records.recorded import read_recorded
from mtcon_ray.records.stored import find_network, find_sweep
from mtcon_ray.tracking.own_runs import remove_runs
from mtcon_ray.training.uploads import NETWORKS

To = Literal["pt2", "onnx", "optuna"]


@click.command()
@click.argument("model", metavar="CHECKPOINT|NAME", callback=options.located)
@click.option(
    "--to", "kind", type=click.Choice(get_args(To)), default="pt2", show_default=True,
    help="pt2, onnx: the encoder, for torch.export or ONNX, which needs the extra onnx. optuna: a "
    "sweep's trials, as a study.",
)  # fmt: skip
@click.option(
    "--out", type=options.PATH,
    help="New folder of an encoder, or file of a study.  [default: a study in the sweep's folder]",
)  # fmt: skip
@options.overrides
@options.root_folder
def export(model: str, kind: To, out: Path | None, overrides: tuple[str, ...], root: Path) -> None:
    """Export an encoder, or a sweep's trials.

    The encoder comes from a checkpoint or from a sweep's winner. Its files include resizing,
    normalisation and a linear probe of each label, which is fitted again on the data.
    """
    if kind == "optuna":
        if overrides:
            raise UserError("--set is for encoders, got --to optuna")
        from mtcon_ray.sweep.optuna_study import write_study

        folder = find_sweep(root, model)
        target = (out or folder / "optuna.journal").absolute()
        count = write_study(folder, read_recorded(folder / paths.SPEC_FILE), target)
        return say(f"{count} trials exported: optuna-dashboard {shlex.quote(str(target))}")
    if out is None:
        raise UserError(f"--to {kind} needs --out, a new folder")
    from mtcon_ray.export.write import export_checkpoint

    path, sweep = find_network(model, root)
    title = sweep.name if sweep else path.resolve().parent.name
    with options.display() as console:
        export_checkpoint(
            path, out, root=root, format=kind, title=title, overrides=overrides, callbacks=console
        )
    say(f"{out}: {', '.join(sorted(entry.name for entry in out.iterdir()))}")


@click.command()
@options.recorded
@click.option("--mlflow", is_flag=True, help="Remove its runs in MLflow, too.")
@options.trust_tracking
@click.option("--yes", is_flag=True, help="Remove it; without this option nothing is removed.")
def clean(name: str, root: Path, mlflow: bool, yes: bool) -> None:
    """Show a sweep's disk usage, or remove it."""
    folder = find_sweep(root, name)
    if is_driven(folder):
        raise SweepError(f"{folder.name!r} is running; stop it before it is removed")
    if url := paths.stored_url(folder):
        size = sum(info.size for info in Objects(url).list().values())
        say(f"{decimal(size)} in {url}")
    size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
    say(f"{decimal(size)} in {folder}")
    left = "" if mlflow else "its runs in MLflow, which --mlflow also deletes, and "
    say(f"not touched: {left}decoded images in {paths.cache_folder(root)}")
    if not yes:
        return say("nothing removed; --yes removes it")
    check_no_links(folder)
    with driver_lock(folder):
        if url:
            Claim(Objects(url), folder.name, take_over=False).end()  # by the clock of the store
        if mlflow:  # first, because the event log identifies them
            spec = read_recorded(folder / paths.SPEC_FILE)
            say(remove_runs(folder, options.uri_of(spec, root), spec.tracking.experiment))
        if url:
            Objects(url).remove()
        # Renamed first: an interrupted removal must leave no incomplete sweep under its name.
        doomed = folder.with_name(f".removing-{folder.name}")
        remove_folder(doomed, ignore_errors=True)  # of an earlier removal that was interrupted
        move(folder, doomed)
    remove_folder(doomed)
    say(f"removed {folder}")


@click.command()
@options.recorded
@options.as_json
@options.trust_tracking
@options.allow_plugins
@click.option("--repair", is_flag=True, help="Correct a record from another one.")
@click.option("--no-mlflow", is_flag=True, help="Leave out the runs in MLflow.")
def audit(name: str, root: Path, as_json: bool, repair: bool, no_mlflow: bool) -> int:
    """Compare the records of a sweep.

    The records are the event log, networks and checkpoints, and the runs in MLflow. The exit code
    is 1 if they do not agree. --repair also sends events that MLflow lacks, and the events of a
    sweep with tracking.offline.
    """
    from mtcon_ray.sweep.audit import Audit, Finding

    folder = find_sweep(root, name, [*NETWORKS, paths.PREDICTIONS_FILE, paths.REMOVED_FILE])
    if (folder / ELSEWHERE_FILE).exists():
        raise SweepError(f"{name!r} is running on another machine; stop it first")

    def look() -> tuple[Audit, list[Finding]]:
        records = Audit(folder)
        found = [*records.records(), *records.files()]
        if not no_mlflow and (repair or not records.spec.tracking.offline):
            found += records.tracking(options.uri_of(records.spec, root))
        return records, found

    with driver_lock(folder):
        (records, found), repaired = look(), []
        if repair and any(finding.repair for finding in found):
            records.repair(options.uri_of(records.spec, root))
            before, (_, found) = found, look()
            repaired = [finding for finding in before if finding not in found]
    told = {"repaired": [*map(asdict, repaired)], "found": [*map(asdict, found)]}
    lines = [f"repaired: {finding.where}: {finding.problem}" for finding in repaired]
    for finding in found:
        way = f"; --repair: {finding.repair}" if finding.repair else ""
        lines.append(f"{finding.where}: {finding.problem}{way}")
    if not found:
        lines.append(f"{folder.name}: all records agree")
    options.tell({"name": folder.name, **told}, lines, as_json=as_json)
    return 1 if found else 0
