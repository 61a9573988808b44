"""Rows that time the device, and trainings of one process on it."""

import logging
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from threading import Event, Thread
from time import perf_counter, sleep, time

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # in no stub of torch's
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.bench import Bench, Lines
from benchmarks.gpu.values import check
from benchmarks.machine import finish
from mtcon_ray.base.paths import LAST_FILE, MODEL_FILE
from mtcon_ray.data.batch import send
from mtcon_ray.errors import OutOfMemoryError
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.evaluation.protocol import Evaluation, Measurement
from mtcon_ray.training import step_graph

# Bytes of the device that the training of too large a batch may use.
TOO_LITTLE = 2 * 2**30
# Relative difference allowed between the mean losses of the first steps in half precision.
IN_HALF = 0.02
FREED = 10.0  # seconds in which the memory of a failed training must be free
EACH_SECONDS = 0.1  # between two readings of the busy share
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")


def device(bench: Bench) -> Lines:
    """Describes the GPU, its driver, and what of the node the rows need."""
    yield "GPU", partial(_gpu, bench)
    yield "driver, MIG, compute mode", _driver
    yield "versions", _versions
    yield "node", _node


def _gpu(bench: Bench) -> str:
    found = torch.cuda.get_device_properties(bench.device)
    num_free, num_total = torch.cuda.mem_get_info(bench.device)
    return (
        f"{found.name}, compute capability {found.major}.{found.minor}, "
        f"{found.multi_processor_count} multiprocessors, "
        f"{num_free / 2**30:.1f} of {num_total / 2**30:.1f} GiB free"
    )


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return "unknown without nvidia-smi"
    fields = "driver_version,mig.mode.current,compute_mode"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "; ".join((done.stdout or done.stderr).split("\n")).strip("; ")


def _versions() -> str:
    cudnn = torch.backends.cudnn.version()
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}"


def _node() -> str:
    names = {"a C compiler, for Triton": ("gcc", "clang"), "MPS": ("nvidia-cuda-mps-control",)}
    found = [
        f"{what}: {next(filter(None, map(shutil.which, programs)), 'not there')}"
        for what, programs in names.items()
    ]
    # Workers of a DataLoader pass batches through it.
    free = shutil.disk_usage("/dev/shm").free
    return ", ".join([*found, f"/dev/shm: {free / 2**30:.1f} GiB free"])


def launch(bench: Bench) -> Lines:
    """Times the smallest operations, and the largest."""
    yield "a kernel of one element", partial(_kernel, bench)
    yield "a pinned copy of one element", partial(_sent, bench)
    yield "memory", partial(_copy, bench)
    yield f"products in {bench.half}", partial(_product, bench)


def _kernel(bench: Bench) -> str:
    x = torch.zeros(1, device=bench.device)
    return f"{1e6 * seconds_each(lambda: x.add_(1), bench):.1f} us"


def _sent(bench: Bench) -> str:
    x = torch.zeros(1)
    return f"{1e6 * seconds_each(lambda: send(x, bench.device), bench):.1f} us"


def _copy(bench: Bench) -> str:
    return f"{copy_rate(bench) / 1e12:.2f} TB/s, read and written"


@cache
def copy_rate(bench: Bench) -> float:
    """Returns the bytes per second that a copy in the device's memory reads and writes."""
    source = torch.zeros(bench.elements, device=bench.device)
    goal = torch.zeros_like(source)
    return 2 * source.nbytes / seconds_each(lambda: goal.copy_(source), bench)


def _product(bench: Bench) -> str:
    return f"{product_rate(bench) / 1e12:.0f} TFLOP/s, {side_of(bench)} x {side_of(bench)}"


def side_of(bench: Bench) -> int:
    """Returns the side of the timed square matrices."""
    return math.isqrt(bench.elements) // 2


@cache
def product_rate(bench: Bench) -> float:
    """Returns the operations per second of a product of matrices, a sum and a factor each one."""
    side = side_of(bench)
    # Random values: a product of zeros takes less power, so the clock of the GPU is higher.
    x = torch.randn(side, side, device=bench.device).to(getattr(torch, bench.half))
    return 2 * side**3 / seconds_each(lambda: x @ x, bench)


def seconds_each(do: Callable[[], object], bench: Bench) -> float:
    """Returns the seconds of a call when many follow each other without a synchronisation."""
    num_calls = 1
    while True:
        finish(bench.device)
        begin = perf_counter()
        for _ in range(num_calls):
            do()
        finish(bench.device)
        seconds = perf_counter() - begin
        if seconds >= bench.seconds / 4:
            return seconds / num_calls
        num_calls *= 4


def compiling(bench: Bench) -> Lines:
    """Compares a training with CUDA graphs with one without."""
    yield "graphs", partial(_compiled, bench)


def _compiled(bench: Bench) -> str:
    size, batch_size = bench.sizes[0], bench.batches[0]
    plain, graphs = (
        bench.run(bench.spec(size=size, batch_size=batch_size, train__compile=how), how)
        for how in ("none", "graphs")
    )
    bench.warm(plain)
    with messages(step_graph.log) as fell_back:
        begin = perf_counter()
        bench.warm(graphs)
        seconds = perf_counter() - begin
    loss = check("loss", abs(graphs._tally.means()[0] / plain._tally.means()[0] - 1), IN_HALF)
    times = [1e3 * seconds_each(run._train_step, bench) for run in (plain, graphs)]
    return (
        f"{times[1]:.2f} ms a step, {times[0]:.2f} without; {bench.warm_up} steps with the capture "
        f"{seconds:.1f} s; {loss}; {'; '.join(fell_back) or 'nothing fell back'}"
    )


@contextmanager
def messages(log: logging.Logger) -> Iterator[list[str]]:
    """Yields the list of what is logged inside."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Handler()
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)


def memory(bench: Bench) -> Lines:
    """Trains a batch that cannot fit in a small part of the device, then one that can."""
    yield "too large a batch, then a good one", partial(_memory, bench)


def _memory(bench: Bench) -> str:
    _, num_total = torch.cuda.mem_get_info(bench.device)
    share = min(1.0, TOO_LITTLE / num_total)
    good = bench.spec(size=bench.sizes[0], batch_size=bench.batches[0])
    bench.warm(bench.run(good, "first"))  # libraries keep memory of their first use
    before = torch.cuda.memory_allocated(bench.device)
    large = bench.spec(
        size=bench.sizes[-1], batch_size=bench.num_images // 2, resources__gpus=share
    )
    message = ""
    try:
        bench.run(large, "large")._train_step()
    except OutOfMemoryError as error:
        message = str(error).partition(";")[0]
    assert message, f"{bench.num_images // 2} images must not fit {share:.3f} of the device"
    # The thread of the backward pass may free the graph a moment later.
    begin = perf_counter()
    while (left := torch.cuda.memory_allocated(bench.device) - before) > 2**20:
        assert perf_counter() - begin < FREED, f"{left / 2**20:.0f} MiB are still allocated"
        sleep(0.001)
    freed = perf_counter() - begin
    after = bench.run(good, "good")
    bench.warm(after)
    after.learner.watch.check()
    return f"{message}; all freed after {1e3 * freed:.0f} ms, the next one trains"


def checkpoints(bench: Bench) -> Lines:
    """Times what the files of a validated epoch take of the training."""
    yield f"batch {bench.batches[0]}", partial(_checkpoints, bench)


def _checkpoints(bench: Bench) -> str:
    spec = bench.spec(size=bench.sizes[0], batch_size=bench.batches[0])
    run = bench.run(spec, "checkpoints")
    bench.warm(run)
    epoch = seconds_each(run._train_step, bench) * run._batches.steps_per_epoch
    found = []
    for save in (partial(run._keep, 1, 0.5), run._save_last):
        save()  # the first write allocates memory
        finish(bench.device)
        begin = perf_counter()
        save()
        found.append(perf_counter() - begin)
    sizes = [(run.folder / name).stat().st_size for name in (MODEL_FILE, LAST_FILE)]
    parts = [
        f"{name} with {size / 1e6:.0f} MB {1e3 * seconds:.0f} ms"
        for name, size, seconds in zip((MODEL_FILE, LAST_FILE), sizes, found, strict=True)
    ]
    return f"{', '.join(parts)}; together {100 * sum(found) / epoch:.1f} % of {epoch:.1f} s"


def probes(bench: Bench) -> Lines:
    """Times the parts of the test evaluation, the probes on the device and on the CPU."""
    yield f"{bench.num_images} images", partial(_probes, bench)


def _probes(bench: Bench) -> str:
    run = bench.run(bench.spec(size=bench.sizes[0], batch_size=bench.batches[0]), "probes")
    found: list[Measurement] = []

    def encode(evaluation: Evaluation) -> dict[str, float]:
        found.append(evaluation.full_measurement())
        return {}

    def seconds(do: Callable[[], object]) -> float:
        begin = perf_counter()
        do()
        finish(bench.device)
        return perf_counter() - begin

    for _ in range(2):  # the first one chooses algorithms
        encoding = seconds(lambda: run.evaluate(encode))
    there = found[-1]
    assert there.val is not None
    train, val, measured = map(on_host, (there.train, there.val, there.measured))
    here = there._replace(train=train, val=val, measured=measured)
    there.fit()
    on_device, on_cpu = seconds(there.fit), seconds(here.fit)
    width = there.train.features.shape[1]
    return (
        f"encoded in {encoding:.2f} s; {len(there.places)} probes of {width} features fitted in "
        f"{on_device:.2f} s, on the CPU by one thread in {on_cpu:.2f} s"
    )


def on_host(labelled: LabelledFeatures) -> LabelledFeatures:
    """Returns features and labels on the CPU."""
    labels = {name: each.cpu() for name, each in labelled.labels.items()}
    return LabelledFeatures(labelled.features.cpu(), labels)


def kernel_seconds(do: Callable[[], object], device: torch.device) -> tuple[int, float]:
    """Returns the launches of a call, of kernels or of graphs, and its kernels' seconds."""
    on_gpu = [ProfilerActivity.CUDA] if device.type == "cuda" else []
    with profile(activities=[ProfilerActivity.CPU, *on_gpu]) as found:
        do()
        finish(device)
    averages = found.key_averages()
    launches = sum(each.count for each in averages if each.key.startswith(LAUNCHES))
    # An operation on the CPU and a range of operations have the time of their kernels, too.
    microseconds = sum(
        each.self_device_time_total
        for each in averages
        if each.device_type != DeviceType.CPU and not each.is_user_annotation
    )
    return launches, microseconds / 1e6


@contextmanager
def busy_shares(device: torch.device) -> Iterator[list[tuple[float, float]]]:
    """Yields a list that is filled with Unix seconds and the GPU's busy share, in percent.

    The share is NVML's. The list stays empty without a GPU or without the package nvidia-ml-py.
    """
    found: list[tuple[float, float]] = []
    ended = Event()

    def read() -> None:
        while not ended.wait(EACH_SECONDS):
            found.append((time(), float(torch.cuda.utilization(device))))

    try:
        torch.cuda.utilization(device)
    except Exception:  # NVML's errors derive from it alone
        yield found
        return
    reader = Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        ended.set()
        reader.join()
