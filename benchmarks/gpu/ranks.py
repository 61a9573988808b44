"""Row `ranks`: the same training by one rank and by all ranks, over NCCL on several GPUs.

`python -m benchmarks.gpu.ranks` writes the stored values anew, from two ranks on the CPU. A change
of these values must be intended.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessRaisedException, spawn

from benchmarks.gpu.bench import Bench, Lines
from benchmarks.gpu.values import CPU, check, error_of, repeatable
from mtcon_ray.base import metrics
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.training.device import device_name
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import make_data, make_spec

Values = Mapping[str, Tensor]  # each epoch's loss, then parameters and running moments

STORED = Path(__file__).with_name("ranks.json")  # the 2-norm of each of the values
EPOCHS, STEPS_PER_EPOCH, BATCH_SIZE = 3, 20, 48
# Allowed relative difference of each value, in the 2-norm. In float32 on a CPU another order of the
# sums gives 1e-5, and errors of 1e-5 in the views, as a GPU's may have, give 3e-4. Gradients that
# are not reduced or have a wrong factor, rows in a wrong order and local batch norm give 0.6.
SAME = 1e-2
SECONDS = 300  # duration after which ranks that still run are killed


def ranks(bench: Bench) -> Lines:
    """Compares a training by all ranks with one by a single rank, and both with stored values."""
    devices = devices_of(bench.device)
    done: dict[int, list[Values]] = {}
    yield "devices", partial(_in_words, devices)
    for count in (1, len(devices)):
        name = f"{count} rank{'s' if count > 1 else ''}"
        yield name, partial(_compared, devices[:count], bench.folder, done)


def devices_of(device: torch.device) -> list[torch.device]:
    """Returns each rank's device: every GPU of the machine, or twice the only device."""
    num_gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    return [torch.device("cuda", i) for i in range(num_gpus)] if num_gpus > 1 else [device] * 2


def backend_of(devices: Sequence[torch.device]) -> str:
    """Returns nccl for several GPUs, else gloo: NCCL refuses two ranks on the same GPU."""
    return "nccl" if len(set(devices)) > 1 else "gloo"


def _in_words(devices: Sequence[torch.device]) -> str:
    counts = Counter(map(device_name, dict.fromkeys(devices)))
    names = ", ".join(f"{count} x {name}" for name, count in counts.items())
    words = f"{names}, {len(devices)} ranks, torch {torch.__version__}"
    if backend_of(devices) == "nccl":
        return f"{words}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    return f"{words}, gloo: NCCL was not exercised"


def _compared(devices: Sequence[torch.device], folder: Path, done: dict[int, list[Values]]) -> str:
    """Adds the ranks' values to `done`, and compares them with `done[1]` and the stored values."""
    world = len(devices)
    assert BATCH_SIZE % world == 0, (
        f"the number of ranks must divide the batch size {BATCH_SIZE}, got {world}; choose fewer "
        "GPUs by CUDA_VISIBLE_DEVICES"
    )
    speed, done[world] = trained(devices, folder)
    words = [f"{speed:.1f} steps/s"]
    if world > 1:
        assert 1 in done, "1 rank must train first"
        words.append(largest({
            f"{name} of rank {rank} and of 1 rank": (found[name], expected)
            for rank, found in enumerate(done[world])
            for name, expected in done[1][0].items()
        }))  # fmt: skip
    stored = json.loads(STORED.read_text())
    words.append(largest({
        f"{name} and the stored value": (done[world][0][name].norm(), torch.tensor(expected))
        for name, expected in stored.items()
    }))  # fmt: skip
    return "; ".join(words)


def largest(pairs: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """Returns the largest relative differences of losses and of all pairs, and the latter's name.

    Raises AssertionError with the name of the first pair that differs by more than SAME.
    """
    errors = {name: error_of(*pair) for name, pair in pairs.items()}
    for name, error in errors.items():
        check(name, error, SAME)
    worst = max(errors, key=errors.__getitem__)
    loss = max(error for name, error in errors.items() if name.startswith("loss of"))
    return f"losses {loss:.0e}, largest {errors[worst]:.0e}: {worst}"


def trained(devices: Sequence[torch.device], folder: Path) -> tuple[float, list[Values]]:
    """Trains by one process per device. Returns rank 0's steps per second and all ranks' values.

    The data set is kept in `folder`.
    """
    own = Path(mkdtemp(dir=folder))
    context = spawn(_as_rank, (devices, folder / "store", own), len(devices), join=False)
    assert context is not None
    deadline = time.monotonic() + SECONDS
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, f"the ranks must end within {SECONDS} s"
    except ProcessRaisedException as error:  # its text is the traceback
        reason = str(error).strip().splitlines()[-1]
        raise RuntimeError(f"rank {error.error_index}: {reason}") from error
    finally:
        for process in context.processes:
            process.kill()
    found = [torch.load(own / f"{rank}.pt", weights_only=True) for rank in range(len(devices))]
    return found[0][0], [values for _, values in found]


def _as_rank(rank: int, devices: Sequence[torch.device], store: Path, folder: Path) -> None:
    device, ranks, limit = devices[rank], Ranks(rank, len(devices)), timedelta(seconds=SECONDS)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # as Ray Train does
    dist.init_process_group(
        backend_of(devices), f"file://{folder / 'group'}", limit, ranks.world, rank
    )
    spec = with_values(
        make_spec("mtcon", steps=EPOCHS * STEPS_PER_EPOCH),
        {"train.epochs": EPOCHS, "train.batch_size": BATCH_SIZE, "train.precision": "float32"},
    )
    run = Trainer(spec, make_data(spec, store), folder / "run", device=device, ranks=ranks)
    # If rounding flips a ReLU, gradients change by about a thousandth.
    for module in list(run.network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.SiLU())
    run.resume()
    with repeatable():
        epochs = [epoch.metrics for epoch in run]
    values = {f"loss of epoch {i}": torch.tensor(e[metrics.LOSS]) for i, e in enumerate(epochs, 1)}
    state = {**run.network.state_dict(), **run.learner.method.state_dict()}
    values |= {name: x.cpu() for name, x in state.items() if x.is_floating_point()}
    torch.save((epochs[-1][metrics.IMAGES_PER_SECOND] / BATCH_SIZE, values), folder / f"{rank}.pt")
    dist.destroy_process_group()


def write() -> None:
    """Writes the stored values."""
    with TemporaryDirectory() as folder:
        _, (values, _) = trained([CPU, CPU], Path(folder))
    norms = {name: float(f"{value.norm():.6g}") for name, value in values.items()}
    STORED.write_text(json.dumps(norms, indent=1) + "\n")


if __name__ == "__main__":
    write()
