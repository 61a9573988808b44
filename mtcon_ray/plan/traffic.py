"""Requests to an object store that has the root, uploaded bytes, and bytes between workers.

They are computed before a start. The numbers of requests are those of pyarrow and of the modules
that make them: the claim and the log (`records/stored.py`), checkpoints (`training/uploads.py`),
and the files of ended trials.
"""

from mtcon_ray.data import objects
from mtcon_ray.spec.run_spec import RunSpec

FLOAT_BYTES = 4
# Tensors with the size of the network in a resume state: the network, and the optimizer's moments.
STATES = {"sgd": 2, "lars": 2, "adam": 3, "adamw": 3}
DELETE = 3  # requests of pyarrow for a removal
# Requests of a trial besides regular saves: the list of its files, its start, its end and two files
# in the log, uploads of network, state and predictions, each with a look at the claims, and
# removals. Its first two saves remove nothing.
OF_TRIAL = 1 + 4 + 6 + 2 * DELETE + (1 + 2 * DELETE) + 1 - 3 * DELETE


def store_traffic(spec: RunSpec, parameters: int, concurrency: int) -> tuple[int, int, int, int]:
    """Returns requests and uploaded bytes of each hour, and those of each trial in addition.

    `parameters` is the size of the largest network, `concurrency` the number of trials at a time.
    Saves for compared values (`evaluate.select: best`, `train.patience`) are counted to the trial.
    """
    network = parameters * FLOAT_BYTES
    state = network * (STATES.get(spec.train.optimizer.name, 3) + (spec.train.ema is not None))
    # A save asks for other claims, uploads the state and the network, and removes the oldest ones.
    save = 1 + _upload(state) + _upload(network) + 2 * DELETE
    seconds = spec.train.checkpoint_seconds
    saves = 3600 / max(objects.SAVE_SECONDS if seconds is None else seconds, 1.0) * concurrency
    driver = 2 * 3600 / objects.RENEW_SECONDS + 3600 / objects.LAG_SECONDS
    driver += 3600 / objects.SUMMARY_SECONDS
    compared = spec.evaluate.select == "best" or spec.train.patience is not None
    more = spec.train.epochs // spec.evaluate.every if compared else 0
    saved, trial = state + network, OF_TRIAL + more * save
    return round(driver + saves * save), round(saves * saved), trial, (more + 1) * saved


def step_exchange(workers: int, values: int, trained: int) -> dict[str, int | float]:
    """Returns the field `exchange` of a plan without times, empty if nothing is exchanged.

    `values` is the number of values in the rows of all workers, `trained` the number of parameters
    with a gradient. Both are float32 in every precision.
    """
    if workers == 1 or not values:
        return {}
    gathered, reduced = values * FLOAT_BYTES, trained * FLOAT_BYTES
    # Each part of a ring is sent over W - 1 links, and once more so for a sum.
    sent = -(-(workers - 1) * (gathered + 2 * reduced) // workers)
    return {"gathered": gathered, "reduced": reduced, "sent": sent}


def _upload(size: int) -> int:
    """Returns the number of requests to upload a file of this size."""
    return 1 if size < objects.PART_BYTES else 2 + -(-size // objects.PART_BYTES)
