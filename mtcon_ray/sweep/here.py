"""The executor without Ray: trains one trial after another in this process."""

import logging
from collections.abc import Generator
from typing import Any

import torch

from mtcon_ray.base.status import Status
from mtcon_ray.errors import SpecError
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.trial import Assignment, reports

log = logging.getLogger(__name__)


def run_here(driver: Driver, common: dict[str, Any], device: torch.device) -> None:
    """Trains the trials of a sweep until it is over or stopped.

    `common` is the configuration of all trials, see `Assignment.read`. Raises StorageError if the
    event log cannot be written.
    """
    driver.record.log.lag = 0.0  # during an epoch nobody calls `tick`
    while not driver.is_over and (task := driver.next()) is not None:
        try:
            work = Assignment.read({"common": common, **vars(task)})
        except SpecError as error:  # of a failed trial that is tried again
            driver.ended(task.trial, Status.FAILED, str(error))
            continue
        results = reports(work, device=device, should_stop=lambda: driver.stopping)
        _train(driver, task.trial, results)


def _train(driver: Driver, name: str, results: Generator[dict[str, Any], None, None]) -> None:
    outcome, reason = Status.RUNNING, None
    while True:
        try:
            result = next(results, None)
        except Exception as error:  # of the trial: a bug, or a device without memory
            log.exception("%s", name)
            return driver.lost(name, f"{type(error).__name__}: {error}")
        if result is None:
            break
        if not take(driver, name, result):
            results.close()
            break
        outcome, reason = Status(result["outcome"]), result.get("reason")
    driver.ended(name, outcome, reason)


def take(driver: Driver, name: str, result: dict[str, Any]) -> bool:
    """Passes a trial's result to the driver. Returns False if the trial must stop now."""
    if "note" in result:
        driver.callbacks.on_note(result["note"])
    if "halt" in result:
        driver.halt(result["halt"])
    return driver.reported(name, result.get("lines", []), done=result["done"])
