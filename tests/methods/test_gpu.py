"""Training on a GPU: no step has a device synchronisation. Needs a CUDA device.

Without a GPU, tests/training/test_step_graph.py checks that no step reads a value of the device.
"""

from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.testing import start
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import EACH, WITH_OWN_STATE, make_data, make_spec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BFLOAT16 = {"train.precision": "bfloat16", "train.max_grad_norm": 1.0, "train.batch_size": 40}
CHUNKS = {"train.chunk_size": 8, "model.batch_norm": "local"}
# Variants of classes that are trained as they are, and AMCL on other parts that are trained, too.
# One of the latter is enough for `make test`.
COMBINATIONS = {name for name in EACH if "amcl" in name} - {"amcl-moco"}
COMBINATIONS |= {"mtcon-mixed", "mtcon-temperature", "xent-kendall"}


def run_on_gpu(spec: RunSpec, store: Path, folder: Path) -> Trainer:
    run = Trainer(spec, make_data(spec, store), folder / "run", device=GPU)
    run.resume()
    return run


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in EACH), *OTHER_STEPS])
def test_a_step_never_waits_for_a_gpu(
    name: str, changes: dict[str, Any], store: Path, tmp_path: Path
) -> None:
    """Resumes from a checkpoint that a CPU wrote within an epoch, and trains to the end.

    Synchronisations are allowed after the steps only: in evaluation and tracking.
    """
    spec = with_values(make_spec(name), BFLOAT16)
    stops = chain(repeat(False, 5), [True])
    begun = start(spec, store, tmp_path / "run", should_stop=partial(next, stops))
    assert len(list(begun)) == 1
    saved: list[dict[str, Any]] = []
    monkeypatch.setattr(checkpoint, "save", lambda path, state, **_: saved.append(state))
    with pretended_gpu(monkeypatch) as gpu:
        run = run_on_gpu(spec, store, tmp_path)
        assert run.learner.autocast_dtype == torch.bfloat16
        assert run.step == begun.step == 5
        assert_there(run)
        two_steps_without_waiting(run, gpu)
        (last,) = run
        assert last.done
        assert_there(run)
        told = {tuple(name.split("/")[::2]) for name in run.report()}
        assert told >= {("test", task) for task in spec.data.tasks or ()}
    assert saved


@pytest.mark.parametrize(
    "evaluate",
    [
        {},
        {
            "evaluate.probe": {"solver": "sgd", "lr": [0.1, 0.3], "epochs": 2},
            "evaluate.label_sets": {"loss": "asymmetric", "ema": 0.9},
        },
    ],
    ids=["lbfgs", "sgd"],
)
def test_probes_of_all_kinds_are_trained_on_a_gpu(
    evaluate: dict[str, Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes of classes, sets and numbers, and of held-out labels, by both solvers."""
    changes = {"data.held_out": ["colour"], "evaluate.every": 1, **evaluate}
    spec = with_values(make_spec("mtcon-mixed"), {**BFLOAT16, **changes})
    monkeypatch.setattr(checkpoint, "save", lambda path, state, **_: None)
    with pretended_gpu(monkeypatch):
        run = run_on_gpu(spec, store, tmp_path)
        assert [progress.evaluated for progress in run] == [True, True]
        told = run.report()
    for label in ("test/accuracy/shape", "test/map/attributes", "test/r2/size"):
        assert label in told, sorted(told)
    assert {"heldout/accuracy/colour", "heldout/knn/colour"} <= set(told)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mtcon", CHUNKS),
        ("moco", CHUNKS),
        ("mtcon", {"train.precision": "float32"}),
        ("moco", {"train.precision": "float16"}),
        ("mtcon", {"train.optimizer": "lars"}),
    ],
)
def test_steps_of_other_kinds_never_wait(
    name: str, changes: dict[str, Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = with_values(make_spec(name), {**BFLOAT16, **changes})
    with pretended_gpu(monkeypatch) as gpu:
        two_steps_without_waiting(run_on_gpu(spec, store, tmp_path), gpu)


def test_images_that_do_not_fit_are_sent_without_waiting(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended_gpu(monkeypatch, free=10) as gpu:
        run = run_on_gpu(make_spec("mtcon"), store, tmp_path)
        assert run._batches._feed.streams
        two_steps_without_waiting(run, gpu)


@pytest.mark.parametrize("name", ["mtcon", "simsiam", "moco"])
def test_a_step_of_several_ranks_never_waits(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To exchange rows; batch norm is each rank's own, for torch's SyncBatchNorm does wait."""
    exchanged: list[Tensor] = []
    monkeypatch.setattr(dist, "all_reduce", lambda x, **options: exchanged.append(x))
    monkeypatch.setattr(dist, "all_gather_into_tensor", lambda out, x: exchanged.append(x))
    with pretended_gpu(monkeypatch) as gpu:
        run = run_on_gpu(make_spec(name), store, tmp_path)
        run.learner = replace(run.learner, ranks=Ranks(0, 2))
        run._batches.ranks = run.learner.ranks
        two_steps_without_waiting(run, gpu)
    assert len(exchanged) >= 2
    assert all(x.device == GPU for x in exchanged)


@pytest.mark.parametrize("counts", [False, True])
def test_label_sets_of_a_large_batch_never_wait(
    counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not grouped: reading the number of groups would be a device synchronisation."""
    with pretended_gpu(monkeypatch) as gpu:
        gpu.reads = False
        sets_BL = torch.empty(1024, 65, dtype=torch.uint8, device=GPU)
        z_HBVD = torch.empty(1, 1024, 2, 4, device=GPU)
        relation = LabelSets(sets_BL, threshold=0.3, counts=counts)
        assert relation.num_groups(z_HBVD).shape == (1,)
        assert relation.entropies(z_HBVD).shape == (1, 1024)
        assert relation.sums(z_HBVD).shape == z_HBVD.shape


def test_views_are_made_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random parameters are drawn on the host and sent without a synchronisation.

    One copy has the parameters of crops and colours. Each further operation has a copy.
    """
    spec = ViewsSpec(size=8, grayscale=0.5, blur=0.5, solarise=0.5)
    sent: list[Tensor] = []

    def pin(x: Tensor) -> Tensor:
        sent.append(x)
        return pinned(x)

    with pretended_gpu(monkeypatch) as gpu:
        monkeypatch.setattr(Tensor, "pin_memory", pin)
        gpu.reads = False
        drawn = draw_parameters(32, 10, spec, torch.Generator().manual_seed(0))
        images = torch.empty(16, 10, 10, 3, dtype=torch.uint8, device=GPU)
        views = make_views(images, drawn, spec)
    assert (views.shape, views.device) == ((32, 3, 8, 8), GPU)
    assert len(sent) == 4


def test_features_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only synchronisation is after the last batch, not after each."""
    spec = ModelSpec.model_validate({"encoder": {"name": "small", "width": 4}, "head_dim": 4})
    given: list[int] = []
    images, rows = np.zeros((9, 10, 10, 3), np.uint8), np.arange(9)
    with pretended_gpu(monkeypatch) as gpu:
        network = build_network(spec, projections(("a",), dim=4, hidden=None), seed=0).to(GPU)
        encode = network.features

        def counted(x_NCHW: Tensor) -> Tensor:
            given.append(len(x_NCHW))
            return encode(x_NCHW)

        monkeypatch.setattr(network, "features", counted)
        gpu.reads = False
        with pytest.raises(Read, match="to"):
            extract_features(network, images, rows, ViewsSpec(size=8), batch_size=4, device=GPU)
    assert given == [4, 4, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", EACH)
def test_a_step_never_waits_for_a_gpu(name: str, store: Path, tmp_path: Path) -> None:
    """This includes labels, images, views, seeds and sums over steps."""
    run = run_on_gpu(with_values(make_spec(name), changes), store, tmp_path)
    for step in range(3):  # the first two steps choose algorithms and fill the allocator's cache
        torch.cuda.set_sync_debug_mode("error" if step == 2 else "default")
        try:
            run._train_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    run.learner.watch.check()


@pytest.mark.parametrize("name", WITH_OWN_STATE)
def test_a_training_of_a_cpu_continues_on_a_gpu(name: str, store: Path, tmp_path: Path) -> None:
    """It resumes from a checkpoint within an epoch, and trains and evaluates to the end."""
    spec = make_spec(name)
    stops = chain(repeat(False, 5), [True])
    begun = start(spec, store, tmp_path / "run", should_stop=partial(next, stops))
    assert len(list(begun)) == 1
    run = run_on_gpu(spec, store, tmp_path)
    assert run.step == begun.step == 5
    (last,) = run
    assert last.done
    found = {tuple(metric.split("/")[::2]) for metric in run.report()}
    assert found >= {("test", task) for task in spec.data.tasks or ()}
