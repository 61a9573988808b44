"""Runs of Weights & Biases. The user's WANDB_MODE decides whether they are uploaded."""

import os
from pathlib import Path
from typing import Any

# Read at the import: W&B must not report crashes to its own server.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

from mtcon_ray.base.root_files import check_no_links, remove_folder
from mtcon_ray.errors import TrackingError, UserError
from mtcon_ray.spec.run_spec import set_value
from mtcon_ray.tracking.exporter import ExportedRun
from mtcon_ray.tracking.mlflow_server import first_line

# W&B's own records would describe the exporting process, not the training process.
SETTINGS: dict[str, Any] = {
    "console": "off", "silent": True, "disable_git": True, "save_code": False,
    "x_disable_stats": True, "x_disable_machine_info": True, "x_disable_meta": True,
    "x_save_requirements": False,
}  # fmt: skip


def is_offline() -> bool:
    """Returns True if W&B only writes files, which `wandb sync` can upload.

    Raises UserError if W&B is disabled.
    """
    mode = str(wandb.setup().settings.mode)
    if mode == "disabled":
        raise UserError("WANDB_MODE must be online or offline to export runs, got disabled")
    return mode == "offline"


def write_run(out: Path, project: str, run: ExportedRun) -> None:
    """Writes a run, with the sweep as its group and the settings as its config.

    Online an existing run is continued after its last step. Offline the files of a run in `out`
    are replaced. A project in W&B's own settings has priority over `project`. The run's summary has
    the status from MLflow.
    """
    offline = is_offline()
    check_no_links(out / "wandb")
    for earlier in (out / "wandb").glob(f"offline-run-*-{run.identity}") if offline else ():
        remove_folder(earlier)
    config: dict[str, Any] = {}
    for path, value in run.settings.items():  # W&B's keys have no dots
        set_value(config, path, value)
    try:
        opened = wandb.init(
            project=wandb.setup().settings.project or project,
            group=run.group,
            name=run.name,
            id=run.identity,
            config=config,
            dir=str(out),
            # Without `resume`, a second sync of a run's files replaces the run.
            resume=None if offline else "allow",
            allow_val_change=True,
            settings=wandb.Settings(**SETTINGS),
        )
    except wandb.Error as error:
        raise TrackingError(
            f"cannot send the run {run.group}/{run.name} to W&B: {first_line(error)}; "
            "log in with `wandb login`, or set WANDB_MODE=offline and send it later with "
            "`wandb sync`"
        ) from error
    for report in run.reports:
        if report.epoch >= opened.starting_step:
            opened.log({**report.metrics, "_timestamp": report.time_ms / 1000}, step=report.epoch)
    status = run.ended.status if run.ended else "RUNNING"
    opened.summary["status"] = status
    is_pruned = run.ended is not None and run.ended.tags.get("mtcon.pruned") == "true"
    if is_pruned:
        opened.tags = ("stopped early",)
    opened.finish(exit_code=int(not is_pruned and status in ("FAILED", "KILLED")))
