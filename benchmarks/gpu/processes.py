"""Row `sharing`: concurrent trainings on the same GPU."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from time import perf_counter
from typing import Any, TextIO
from uuid import uuid4

import torch

from benchmarks.gpu.bench import Bench, Lines
from benchmarks.machine import finish
from mtcon_ray.training.trainer import Trainer

START_SECONDS = 120
MPS = "nvidia-cuda-mps-control"
AT_ONCE = 10  # steps between two looks at the clock

# Yields variables of the processes' environment, or None if the environment cannot be made.
Environment = AbstractContextManager[dict[str, str] | None]


def sharing(bench: Bench) -> Lines:
    """Times concurrent trainings on the device, each in its own process."""
    for how, (name, environment) in product(
        bench.compile, (("without MPS", without_mps), ("with MPS", with_mps))
    ):
        one = replace(bench, compile=(how,))
        yield (
            f"batch {bench.batches[0]}, compile {how}, {name}",
            partial(_sharing, one, environment),
        )
    yield f"batch {bench.batches[0]}, compile graphs, one process", partial(_streams, bench)


def _sharing(bench: Bench, environment: Callable[[], Environment]) -> str:
    with ExitStack() as stack:
        variables = stack.enter_context(environment())
        if variables is None:
            return f"not run: {MPS} is not there"
        # All workers start once. A waiting worker takes memory, but no time of the device.
        workers = [Worker(bench, variables) for _ in range(max(bench.processes))]
        for each in workers:
            stack.callback(each.close)
        for each in workers:
            each.answer()
        rates = {n: rate_of(workers[:n], bench.seconds) for n in bench.processes}
    return in_words(rates)


def _streams(bench: Bench) -> str:
    """Times trainings in threads of a process, each on its own stream."""
    spec = bench.spec(size=bench.sizes[0], batch_size=bench.batches[0], train__compile="graphs")
    runs = []
    for number in range(max(bench.processes)):
        run = bench.run(spec, f"stream-{number}")
        bench.warm(run)  # in turn: two captures must not overlap
        runs.append(run)

    def train(run: Trainer) -> float:
        if bench.device.type != "cuda":
            return views_per_second(run, bench.seconds, partial(finish, bench.device))
        stream = torch.cuda.Stream(bench.device)
        with torch.cuda.stream(stream):
            return views_per_second(run, bench.seconds, stream.synchronize)

    rates = {}
    for n in bench.processes:
        with ThreadPoolExecutor(n) as pool:
            rates[n] = sum(pool.map(train, runs[:n]))
    return in_words(rates)


def in_words(rates: Mapping[int, float]) -> str:
    """Returns the views per second of each number of trainings, and their multiple of the first."""
    alone = next(iter(rates.values()))
    return ", ".join(f"{n}: {rate:,.0f} views/s ({rate / alone:.2f})" for n, rate in rates.items())


def views_per_second(run: Trainer, seconds: float, wait: Callable[[], object]) -> float:
    """Trains for `seconds`. `wait` returns when the GPU has done all launched work."""
    begin, num_steps = perf_counter(), 0
    while perf_counter() - begin < seconds:
        for _ in range(AT_ONCE):
            run._train_step()
        num_steps += AT_ONCE
        wait()  # otherwise launches of many seconds would be queued
    num_views = run.spec.train.batch_size * run.spec.views.num_views
    return num_views * num_steps / (perf_counter() - begin)


def rate_of(workers: Sequence["Worker"], seconds: float) -> float:
    """Returns the sum of the workers' views per second."""
    for each in workers:
        each.ask(seconds)
    return sum(float(each.answer()) for each in workers)


class Worker:
    """A process that trains on request, and is killed if it takes too long."""

    def __init__(self, bench: Bench, variables: Mapping[str, str]) -> None:
        self._errors = bench.folder / f"{uuid4()}.log"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, as_text(bench)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | variables,
            )
        self._limit = Timer(2 * START_SECONDS, self._process.kill)
        self._limit.start()

    def ask(self, seconds: float) -> None:
        """Requests a training of this many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Returns the next line. Raises AssertionError with the process's error if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise AssertionError(f"a training ended: {self._errors.read_text().strip()[-300:]}")
        return line

    def close(self) -> None:
        """Ends the process."""
        self._limit.cancel()
        self._process.kill()
        self._process.communicate()


def as_text(bench: Bench) -> str:
    """Returns the settings as JSON."""
    return json.dumps(asdict(bench), default=str)


def from_text(text: str) -> Bench:
    """Returns the settings of `as_text`."""
    fields: dict[str, Any] = json.loads(text)
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    given |= {name: Path(fields[name]) for name in ("folder", "kept")}
    return Bench(**given | {"device": torch.device(fields["device"])})


def serve(bench: Bench, asked: TextIO, answers: TextIO) -> None:
    """Trains for the number of seconds on each line, and answers with views per second."""
    size, batch_size = bench.sizes[0], bench.batches[0]
    spec = bench.spec(size=size, batch_size=batch_size, train__compile=bench.compile[0])
    run = bench.run(spec, f"process-{os.getpid()}")
    bench.warm(run)
    print("ready", file=answers, flush=True)
    for line in asked:
        rate = views_per_second(run, float(line), partial(finish, bench.device))
        print(rate, file=answers, flush=True)


@contextmanager
def without_mps() -> Iterator[dict[str, str] | None]:
    """Yields environment variables with which a process finds no MPS daemon."""
    with TemporaryDirectory() as folder:
        yield {"CUDA_MPS_PIPE_DIRECTORY": folder}


@contextmanager
def with_mps() -> Iterator[dict[str, str] | None]:
    """Yields environment variables of a new MPS daemon, or None without MPS."""
    if shutil.which(MPS) is None:
        yield None
        return
    with TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = os.environ | variables
        subprocess.run([MPS, "-d"], env=environment, timeout=60, check=True)
        try:
            yield variables
        finally:
            subprocess.run(
                [MPS], input="quit\n", text=True, env=environment, timeout=60, check=False
            )


if __name__ == "__main__":
    serve(from_text(sys.argv[1]), sys.stdin, sys.stdout)
