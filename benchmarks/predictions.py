"""Predictions of large sweeps for docs/scale.md. Nothing is measured here.

Inputs are measured rates (docs/results/gpu.md, the stages `decoding` and `tables`) and given
bandwidths. Formulas are linear in images, pixels and bytes.
"""

from dataclasses import dataclass

from benchmarks.table import markdown
from mtcon_ray.plan.traffic import step_exchange, store_traffic
from mtcon_ray.spec.run_spec import RunSpec, parse_spec

TRIALS = 50
BATCH, VIEWS, HEADS, HEAD_DIM = 1024, 2, 3, 128
WIDTH = 512  # features, kept in float32, and for the probe of a label twice in float64
TRAIN = 0.7  # share of the images on which a probe is trained
PARAMETERS = 11_600_000  # a ResNet-18 with three heads
# Views per second of a ResNet-18 on an H200 in batches of 512, measured at 112 pixels. At 224
# pixels a view has four times the operations.
VIEWS_PER_SECOND = {112: 50_050, 224: 50_050 / 4}
# Of a step without CUDA graphs, which several workers do not have. Measured with small batches.
LAUNCH_SECONDS = 0.018
# Images decoded by 16 threads of the driver. Each holds Python's lock for 0.08 ms.
DECODED_PER_SECOND = {112: min(16 * 640, 12_500), 224: min(16 * 530, 12_500)}
VALIDATE_SECONDS, VALIDATE_MIB = 15.1, 299  # of a million rows with three labels
NETWORK = 1.25e9  # bytes per second between a node and the store, 10 Gbit/s
LINKS = {"1.25 GB/s": 1.25e9, "25 GB/s": 25e9}  # between the workers of a trial
GPUS = {8: 1, 64: 1, 512: 8}  # workers of a trial, by the number of GPUs


@dataclass(frozen=True)
class Images:
    """A data set: its number of images, their side in pixels, and the epochs of a trial."""

    title: str
    number: int
    side: int
    epochs: int

    @property
    def bytes(self) -> int:
        """Returns the size of the decoded images."""
        return self.number * self.side**2 * 3


SETS = (
    Images("ImageNet-1k", 1_281_167, 224, 100),
    Images("iNaturalist 2021", 2_686_843, 224, 100),
    Images("100 million images", 100_000_000, 112, 10),
)


def spec() -> RunSpec:
    """Returns the predicted sweep's spec. Its data do not matter."""
    train = {"batch_size": BATCH, "optimizer": {"name": "sgd"}}
    return parse_spec({"name": "large", "data": "synthetic", "train": train})


def start_row(images: Images) -> tuple[str, ...]:
    """Returns what a sweep of this set needs before its first trial."""
    millions = images.number / 1e6
    return (
        f"{images.title}, {images.side} px",
        f"{VALIDATE_SECONDS * millions / 60:,.1f} min, {VALIDATE_MIB * millions / 1024:,.1f} GiB",
        f"{images.number / DECODED_PER_SECOND[images.side] / 60:,.0f} min",
        f"{images.bytes / 1e9:,.0f} GB",
        f"{images.bytes / NETWORK / 60:,.0f} min",
        f"{VIEWS_PER_SECOND[images.side] / VIEWS * images.side**2 * 3 / 1e9:.2f} GB/s",
        f"{images.number * WIDTH * (4 + TRAIN * 2 * 8) / 1e9:,.0f} GB",
    )


def sweep_row(images: Images, gpus: int) -> tuple[str, ...]:
    """Returns the hours of a sweep, its reports, and the store's load."""
    workers = GPUS[gpus]
    at_once = min(TRIALS, gpus // workers)
    steps = images.number * images.epochs / BATCH
    seconds = [step_seconds(workers, images.side) + sent_bytes(workers) / b for b in LINKS.values()]
    hours = sorted({steps * each / 3600 for each in seconds})
    waves = -(-TRIALS // at_once)
    requests, uploaded, *_ = store_traffic(spec(), PARAMETERS, at_once)
    return (
        f"{images.title}, {gpus} GPUs",
        f"{at_once} of {workers}",
        " to ".join(f"{waves * each:,.1f}" for each in hours),
        f"{at_once / (hours[0] * 3600 / images.epochs):.2g}",
        f"{requests:,}",
        f"{uploaded / 1e9:,.0f} GB",
    )


def step_seconds(workers: int, side: int) -> float:
    """Returns the seconds of a step without its exchange."""
    step = BATCH * VIEWS / workers / VIEWS_PER_SECOND[side]
    return step if workers == 1 else max(step, LAUNCH_SECONDS)


def sent_bytes(workers: int) -> float:
    """Returns the bytes that each worker sends in a step."""
    return step_exchange(workers, BATCH * VIEWS * HEADS * HEAD_DIM, PARAMETERS).get("sent", 0)


def exchange_row(workers: int) -> tuple[str, ...]:
    """Returns the bytes that a worker sends in a step, and its share of the step by bandwidth."""
    sent, step = sent_bytes(workers), step_seconds(workers, 224)
    shares = [sent / link / (sent / link + step) for link in LINKS.values()]
    return (f"{workers}", f"{sent:,}", f"{1000 * step:.0f} ms", *(f"{s:.0%}" for s in shares))


def measure() -> str:
    """Returns the tables of predictions."""
    before = ("predicted, before the first trial", "table", "decoding", "on each node's disk",
              "to a new node", "read by each GPU", "test evaluation")  # fmt: skip
    during = (f"predicted, {TRIALS} trials", "trials of workers", "hours", "reports/s",
              "requests/h", "uploads/h")  # fmt: skip
    exchanged = ("predicted, workers of a trial, 224 px", "sent in a step, bytes", "step", *LINKS)
    return "\n\n".join(
        (
            markdown(before, [start_row(images) for images in SETS]),
            markdown(during, [sweep_row(images, gpus) for images in SETS for gpus in GPUS]),
            markdown(exchanged, [exchange_row(workers) for workers in (8, 64, 512)]),
        )
    )
