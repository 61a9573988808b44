"""The trainer: a training in this process, which yields its progress epoch by epoch."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from mtcon_ray.base import metrics
from mtcon_ray.base.paths import LAST_FILE, MODEL_FILE, PREDICTIONS_FILE, PREVIOUS_FILE
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import Network
from mtcon_ray.spec.run_spec import RunSpec, dump_spec
from mtcon_ray.training import checkpoint
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.device import device_name, explain_out_of_memory, settle
from mtcon_ray.training.distributed import ALONE, Agreement, Ranks, any_rank, check_same
from mtcon_ray.training.optimizer import lr_at
from mtcon_ray.training.step import Tally, Update, epoch_metrics, make_learner, make_step, prepare
from mtcon_ray.training.step_graph import make_graph

# Steps between two checks for non-finite values. Each check synchronises with the device.
CHECK_EVERY = 50
# Steps are trained for this many times the duration of the last save, so saving takes at most 5 %.
TRAIN_PER_SAVE = 20


@dataclass(frozen=True)
class Progress:
    """Metrics of one completed epoch, counted from 1, by the names of `metrics`.

    Validation metrics are included on rank 0 and in evaluated epochs only.
    """

    epoch: int
    metrics: dict[str, float]
    evaluated: bool
    done: bool


class Trainer:
    """A training in this process. `resume` continues it from `folder/last.pt` at any step.

    `folder/model.pt` is the selected network, used for the value and the test scores. It is the
    last validated network, or the best with `evaluate.select: best`.

    Iterating trains and yields one Progress per epoch, until `train.epochs` or a plateau
    (`train.patience`). All workers yield equally often, as Ray requires. If `should_stop` returns
    True before a step on any worker, or after the epoch `until`, the training is checkpointed and
    the iteration ends with `interrupted` set.

    Rank 0 writes a checkpoint at the end, at a stop, and if `train.checkpoint_seconds` (null:
    `save_seconds`) have passed, which may be in the middle of an epoch. An epoch with a compared
    value (`evaluate.select: best` or `train.patience`) is checkpointed before it is yielded.

    `last` is the last completed epoch, also right after resuming. `to_line` returns the line of an
    epoch for the user's record. It is called on rank 0 for each epoch before the last one. `lines`
    holds these lines, also those of earlier processes: a checkpoint has the lines of its epochs.
    `check` raises PreemptedError in a process that must not replace a checkpoint any more.
    `saved` is called on rank 0 with each written network and its epoch, or checkpoint and its step.

    All randomness follows from the spec's seed and the step. Torch's global generator is seeded in
    each step. No random state is saved. On the CPU a resumed training is bit-equal to a whole one.
    """

    def __init__(
        self,
        spec: RunSpec,
        dataset: Dataset,
        folder: Path,
        *,
        device: torch.device,
        ranks: Ranks = ALONE,
        should_stop: Callable[[], bool] = lambda: False,
        store: Path | None = None,
        until: int | None = None,
        check: Callable[[], None] = lambda: None,
        to_line: Callable[[Progress], str] | None = None,
        saved: Callable[[Path, int], None] = lambda path, number: None,
        save_seconds: float = 30.0,
    ) -> None:
        torch.set_num_threads(spec.resources.cpus)
        settle(device, spec.resources.gpu_share)
        self.spec, self.dataset, self.folder = spec, dataset, folder
        self.device, self.ranks = device, ranks
        self._until = math.inf if until is None else until
        self._should_stop = Agreement(should_stop, ranks=ranks, device=device)
        self.interrupted, self.best_epoch = False, 0
        self.last: Progress | None = None
        self._to_line, self._saved, self.lines = to_line, saved, list[str]()
        self._check = check
        given = spec.train.checkpoint_seconds
        self._least_seconds = save_seconds if given is None else given
        self.best: float | None = None
        self._at_plateau = False  # on ranks other than 0 only after the epoch is yielded
        self.step, self._lr, self._tally = 0, 0.0, Tally()
        # Clock times of the last save's end and of the begin of the steps that are being timed.
        self._saved_at = self._timed_from = self._save_seconds = 0.0
        self._last_is_whole = False
        with self._memory_check():
            method = METHODS[spec.method.name](spec.method, spec.problem(dataset.sizes)).to(device)
            examples = method.examples(dataset, spec.seed)
            self._batches = Batches(dataset, examples, spec, device=device, ranks=ranks)
            self.learner = make_learner(method, spec, device=device, ranks=ranks, store=store)
        self._graph = make_graph(self.learner, spec.train, device)
        self.num_steps = spec.train.epochs * self._batches.steps_per_epoch

    @property
    def network(self) -> Network:
        """The network to be probed and kept, with its current weights: averaged by `train.ema`."""
        return self.learner.network if self.learner.average is None else self.learner.average

    @property
    def place(self) -> dict[str, str]:
        """The device's model and the precision. Trials and attempts may differ in both."""
        dtype = self.learner.autocast_dtype or torch.float32
        return {"device": device_name(self.device), "precision": str(dtype).removeprefix("torch.")}

    @property
    def done(self) -> bool:
        """True if the last epoch is completed, or an epoch at a plateau."""
        return self.step == self.num_steps or self._at_plateau

    @property
    def at_rung(self) -> bool:
        """True if the epoch `until` is completed. It may not have been yielded yet."""
        return self.last is not None and self.last.epoch >= self._until

    def resume(self) -> str | None:
        """Continues from the newest whole checkpoint in the folder, if one exists.

        Returns the damage of newer checkpoints, or None. Raises CheckpointError if the checkpoint
        belongs to another spec or other data, ResourceError if workers read different checkpoints.
        """
        # The epoch of the best network is not trained again, so its model.pt must be intact too.
        with_model = self.spec.evaluate.select == "best"
        state, path, damage = checkpoint.load_newest(self.folder, with_model=with_model)
        if state is not None and path is not None:
            checkpoint.check_same_training(path, state, self.spec, self.dataset.fingerprint)
            with checkpoint.reading(path):
                self.learner.restore(state)
                self.step = int(state["step"])
                self.best, self.best_epoch = state["best"], state["best_epoch"]
                self.last = None if state["last"] is None else Progress(**state["last"])
                self.lines = list(map(str, state["lines"]))
                self._at_plateau = self.last is not None and self.last.done
                self._tally = Tally(**state["tally"])
        self._last_is_whole = path is not None and path.name == LAST_FILE
        check_same(self.step, self.folder, self.ranks, self.device)
        if damage is None:
            return None
        epoch = self.step // self._batches.steps_per_epoch
        text = f"continues after epoch {epoch}, from {path.name}" if path else "starts from scratch"
        return f"{damage}; the training {text}"

    def __iter__(self) -> Iterator[Progress]:
        """Trains. Raises StorageError if a checkpoint cannot be written, and DivergedError."""
        checkpoint.make_folder(self.folder)
        self.interrupted = False
        self._saved_at = self._timed_from = perf_counter()
        if not self.spec.method.trains and not self.done:
            self.step = self.num_steps
            yield self._close_epoch(None)
        while not self.done:
            if self._should_stop() or self.at_rung:
                self._save_last()
                self.interrupted = True
                return
            last_update = self._train_step()
            if self.step % self._batches.steps_per_epoch == 0:
                yield self._close_epoch(last_update)
                if self.spec.train.patience is not None and self.step < self.num_steps:
                    # After the yield: until then other ranks may wait for rank 0's probe or test
                    # evaluation, which can take longer than a collective operation may.
                    self._at_plateau = any_rank(self._at_plateau, self.ranks, self.device)
                self._timed_from = perf_counter()
            elif self._save_is_due():
                self._save_last()

    def report(self) -> dict[str, float]:
        """Returns the test evaluation of model.pt by metric name. Writes predictions.npz.

        Returns nothing and writes nothing if `evaluate.test` is false.
        """
        assert self.done, f"report at the end, not after step {self.step}"
        if not self.spec.evaluate.test:
            return {}
        if self.spec.evaluate.select == "best":
            # The training is over, so the selected weights may overwrite the last weights.
            self.network.load_state_dict(checkpoint.load(self.folder / MODEL_FILE)["network"])
        return self.evaluate(partial(Evaluation.report, predictions=self.folder / PREDICTIONS_FILE))

    def evaluate(self, measure: Callable[[Evaluation], dict[str, float]]) -> dict[str, float]:
        """Returns what `measure` finds of the network."""
        place = self.device, self.learner.autocast_dtype
        size = f"evaluate.batch_size {self.spec.evaluate.batch_size}"
        with explain_out_of_memory(size, "lower evaluate.batch_size"):
            return measure(Evaluation(self.network, self.dataset, self.spec, *place))

    def _train_step(self) -> Update:
        self._lr = lr_at(self.step, self.spec.train, steps_per_epoch=self._batches.steps_per_epoch)
        with self._memory_check():
            size = self.spec.train.chunk_size or self.spec.train.batch_size
            chunks, batch = self._batches.chunks(self.step, size)
            torch.manual_seed(self._batches.seed_of(self.step))
            prepare(self.learner, lr=self._lr, step=self.step, num_steps=self.num_steps)
            done = (self._graph or partial(make_step, self.learner))(chunks, batch, self.step)
        self._tally.add(done)
        self.step += 1
        if self.step % CHECK_EVERY == 0:
            self.learner.check()
        return done

    def _close_epoch(self, last_update: Update | None) -> Progress:
        """Evaluates the completed epoch, keeps its network and saves, as the spec requires."""
        epoch = self.step // self._batches.steps_per_epoch
        values = {}
        if last_update is not None:
            self._time_steps()
            images = self.spec.train.batch_size * self.spec.method.images_per_example
            values = epoch_metrics(self._tally, last_update, lr=self._lr, num_images=images)
        evaluated = self.done or epoch % self.spec.evaluate.every == 0
        if evaluated and self.ranks.rank == 0:
            values |= self.evaluate(Evaluation.validate)
            objective = self.spec.labels.objective
            if self.best is not None and epoch == self.best_epoch:
                # model.pt is a killed process's network of this epoch, so its value is used too.
                values[objective] = self.best
            self._keep(epoch, values[objective])
            self._at_plateau = self.spec.train.is_plateau(epoch - self.best_epoch)
            if self.spec.evaluate.select == "best" and self.best is not None:
                values[metrics.BEST] = self.best
        self.last = Progress(epoch, values, evaluated, self.done)
        if self._to_line and self.ranks.rank == 0 and not self.done:
            self.lines.append(self._to_line(self.last))
        self._tally = Tally()
        # On a GPU an epoch trained again has another value. The event log keeps the first value.
        compared = evaluated and (self.spec.evaluate.select == "best" or self.spec.train.patience)
        if self.done or compared or self._save_is_due():
            self._save_last()
        return self.last

    def _time_steps(self) -> None:
        """Checks the steps since `_timed_from` and adds their time. Waits for the device."""
        self.learner.check()
        self._tally.seconds += perf_counter() - self._timed_from

    def _save_is_due(self) -> bool:
        least = max(self._least_seconds, TRAIN_PER_SAVE * self._save_seconds)
        return self.ranks.rank == 0 and perf_counter() - self._saved_at >= least

    def _memory_check(self) -> AbstractContextManager[None]:
        train, views = self.spec.train, self.spec.views
        return explain_out_of_memory(
            f"train.batch_size {train.batch_size} x {views.num_views} views of {views.size} pixels "
            f"on {self.ranks.world} worker(s)",
            "set train.chunk_size, lower train.batch_size or views.size or raise resources.workers",
        )

    def _write(self, name: str, number: int, state: dict[str, Any]) -> None:
        """Writes a file of the training, with its spec and its data, and tells `saved`."""
        spec, data = json.dumps(dump_spec(self.spec)), self.dataset
        identity = {"spec": spec, "fingerprint": data.fingerprint, "sizes": data.sizes}
        # A damaged last.pt must not replace the intact checkpoint before it.
        old = self.folder / PREVIOUS_FILE if name == LAST_FILE and self._last_is_whole else None
        path = self.folder / name
        checkpoint.save(path, identity | state, previous=old, check=self._check)
        self._saved(path, number)

    def _keep(self, epoch: int, value: float) -> None:
        """Writes model.pt if this validated epoch has the selected network so far."""
        if math.isfinite(value) and (self.best is None or value > self.best):
            self.best, self.best_epoch = value, epoch
        elif self.spec.evaluate.select == "best" and self.best is not None:
            return
        # Without buffers: queues of keys may be larger than the network.
        learned = {name: p.detach() for name, p in self.learner.method.named_parameters()}
        state = {
            "network": self.network.state_dict(),
            "method": learned,
            "classes": {key: list(names) for key, names in self.dataset.table.classes.items()},
            "epoch": epoch,
            "value": value,
        }
        self._write(MODEL_FILE, epoch, state)

    def _save_last(self) -> None:
        begin = perf_counter()
        if self._tally.num_steps:
            self._time_steps()
        if self.ranks.rank == 0:
            state = {
                **self.learner.state(),
                "step": self.step,
                "tally": vars(self._tally),
                "best": self.best,
                "best_epoch": self.best_epoch,
                "last": None if self.last is None else asdict(self.last),
                "lines": self.lines,
            }
            self._write(LAST_FILE, self.step, state)
            self._last_is_whole = True
        self._saved_at = self._timed_from = perf_counter()
        self._save_seconds = self._saved_at - begin
