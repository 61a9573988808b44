"""Runs of Weights & Biases. The user's WANDB_MODE decides whether they are uploaded."""

import os
from pathlib import Path
from typing import Any

# Read at the import: W&B must not report crashes to its own server.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

from mtcon_ray.base.root_files import check_no_links, remove_folder
from mtcon_ray.errors import TrackingError, UserError
from mtcon_ray.records.events import Ended, Reported
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


class WandbRun:
    """Writer of a run, with the sweep as its group and the settings as its config.

    Online an existing run is continued after its last step. Offline the files of a run in `out`
    are replaced. A project in W&B's own settings has priority over `project`.
    """

    def __init__(self, out: Path, project: str, run: ExportedRun) -> None:
        offline = is_offline()
        check_no_links(out / "wandb")
        for earlier in (out / "wandb").glob(f"offline-run-*-{run.identity}") if offline else ():
            remove_folder(earlier)
        config: dict[str, Any] = {}
        for path, value in run.settings.items():  # W&B's keys have no dots
            set_value(config, path, value)
        try:
            self._run = wandb.init(
                project=wandb.setup().settings.project or project,
                group=run.group,
                name=run.name,
                id=run.identity,
                config=config,
                dir=str(out),
                # Without `resume`, a second sync of a run's files replaces the run.
                resume=None if offline else "allow",
                allow_val_change=True,
                reinit="create_new",  # several trials run at a time
                settings=wandb.Settings(**SETTINGS),
            )
        except wandb.Error as error:
            raise TrackingError(
                f"cannot send the run {run.group}/{run.name} to W&B: {first_line(error)}; "
                "log in with `wandb login`, or set WANDB_MODE=offline and send it later with "
                "`wandb sync`"
            ) from error
        self._next_step = self._run.starting_step

    def write(self, report: Reported) -> None:
        """Logs the metrics of an epoch, unless the run has this step already."""
        if report.epoch >= self._next_step:
            seconds = report.time_ms / 1000
            self._run.log({**report.metrics, "_timestamp": seconds}, step=report.epoch)

    def close(self, ended: Ended | None) -> None:
        """Finishes the run. Its summary has the status from MLflow."""
        status = ended.status if ended else "RUNNING"
        self._run.summary["status"] = status
        is_pruned = ended is not None and ended.tags.get("mtcon.pruned") == "true"
        if is_pruned:
            self._run.tags = ("stopped early",)
        self._run.finish(exit_code=int(not is_pruned and status in ("FAILED", "KILLED")))
