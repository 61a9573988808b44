"""A step with each plugin before a sweep starts: errors name a broken plugin and its line."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import SpecError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.models.encoders import ENCODERS, Encoder, EncoderSpec
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.networks import try_plugins
from mtcon_ray.spec.evaluate import METRICS, MetricSpec
from mtcon_ray.spec.methods.base import MethodSpec
from mtcon_ray.spec.optimizers import OPTIMIZERS, SCHEDULES, OptimizerSpec, ScheduleSpec
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.spec.views import AUGMENTATIONS, ExtraSpec
from mtcon_ray.testing import check_resume, start
from tests import specs
from tests.methods import cases
from tests.plans import plan_of
from tests.plugs import registered

SIZES = {"shape": 4, "colour": 4}


def spec_of(**sections: Any) -> RunSpec:
    data = {**specs.TINY["data"], "tasks": list(SIZES)}
    return parse_spec({**specs.TINY, "name": "own", "data": data, **sections})


def pull(loss: Any) -> MethodOutput:
    return MethodOutput({"pull": loss})


class Own(Method):
    """A method with a small loss, or with what `broken` makes of the rows of a head."""

    class Spec(MethodSpec):
        """No fields."""

        name: Literal["own"] = "own"

    broken: Any = staticmethod(lambda z: pull(z.square().mean()))

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> Any:
        return self.broken(z_by_head["shape"])


class OwnEncoder(Encoder):
    """Features of a convolution, averaged over positions, or what `broken` makes of them."""

    class Spec(EncoderSpec):
        """No fields."""

        name: Literal["pooled"] = "pooled"

    broken: Any = staticmethod(lambda x: x.mean(dim=(2, 3)))

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.width = 5
        self.layer = nn.Conv2d(3, self.width, 1)

    def forward(self, x_NCHW: Tensor) -> Any:
        return self.broken(self.layer(x_NCHW))


def raises(z: Tensor) -> Any:
    raise KeyError("my own bug")


def keeps(optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[optimizer.param_groups[0]["params"][0]]["past"] = deque()


class Plain(torch.optim.SGD):
    """SGD by its class alone, or with a step that does what `broken` says."""

    class Spec(OptimizerSpec):
        """No fields."""

        name: Literal["plain"] = "plain"

    broken: Any = None

    def __init__(self, groups: Any, spec: Spec) -> None:
        super().__init__(groups, lr=0.0, momentum=0.9)

    def step(self, closure: Any = None) -> Any:
        return self.broken(self) if self.broken else super().step(closure)


class Falling(ScheduleSpec):
    """A rate of the peak over the step, or what `broken` returns."""

    name: Literal["falling"] = "falling"
    broken: ClassVar[Any] = None

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> Any:
        return self.broken(step) if self.broken else 1 / (1 + step)


class Shift(ExtraSpec):
    """Views shifted by a random number, or what `broken` makes of them."""

    num_draws: ClassVar[int] = 1

    name: Literal["shift"] = "shift"
    broken: ClassVar[Any] = None

    def __call__(self, x_RCHW: Tensor, draw_RK: Tensor) -> Any:
        assert draw_RK.shape == (len(x_RCHW), 1)
        return self.broken(x_RCHW) if self.broken else x_RCHW + draw_RK[..., None, None]


class Spread(MetricSpec):
    """The spread of the features, for classes, or what `broken` returns."""

    name: Literal["spread"] = "spread"
    broken: ClassVar[Any] = None

    def score(self, h_ND: Tensor, y_N: Tensor) -> Any:
        assert len(h_ND) == len(y_N)
        return self.broken(h_ND) if self.broken else h_ND.std()


class Neighbours(Spread):
    """A metric with the name of a score of this package."""

    name: Literal["knn"] = "knn"  # type: ignore[assignment]


@contextmanager
def all_kinds() -> Iterator[dict[str, Any]]:
    """Registers a plugin of each kind. Yields the sections of all but the method and encoder."""
    kinds = [(SCHEDULES, Falling), (AUGMENTATIONS, Shift), (METRICS, Spread), (OPTIMIZERS, Plain)]
    with ExitStack() as stack:
        for table, kind in [*kinds, (METHODS, Own), (ENCODERS, OwnEncoder)]:
            stack.enter_context(registered(table, kind))
        train = {**specs.TINY["train"], "optimizer": "plain", "lr_schedule": "falling"}
        views = {"size": 16, "extra": "shift"}
        yield {"train": train, "views": views, "evaluate": {"bootstrap": 20, "metrics": ["spread"]}}


LINE = raises.__code__.co_firstlineno + 1
WHERE = f"in line {LINE} of .*test_networks.py"
FAILED = f"failed in a step on 2 random images, {WHERE}: KeyError: 'my own"
OUTPUT = "^method 'own': forward must return a MethodOutput, got"
LOSS = r"^method 'own': the loss 'pull' must be a tensor of shape \[\], got"
FEATURES = r"^encoder 'pooled': the features must be a tensor of shape \[4, 5\], got"
VIEWS = r"augmentation 'shift': the views must be a tensor of shape \[4, 3, 16, 16\], got"
SCORE = "metric 'spread': the score of 'shape' must be a number, got"
NO_GRADIENT = r"^method 'own': a loss must have a gradient, got \['pull'\] without; compute it from"


BROKEN = [
    (Own, lambda z: None, f"{OUTPUT} NoneType$"),
    (Own, lambda z: pull(z.mean(dim=(1, 2))), rf"{LOSS} \[2\]; average it over the batch"),
    (Own, lambda z: pull(z.mean().item()), f"{LOSS} float; average it"),
    (Own, lambda z: pull(z.detach().mean()), NO_GRADIENT),
    (Own, raises, f"^method 'own' {FAILED}"),
    (OwnEncoder, lambda h: h[:, :4].mean(dim=(2, 3)), rf"{FEATURES} \[4, 4\]; "),
    (OwnEncoder, lambda h: None, f"{FEATURES} NoneType; "),
    (OwnEncoder, raises, f"^encoder 'pooled' {FAILED}"),
    (Plain, raises, f"optimizer 'plain'.* {FAILED}"),
    (Plain, keeps, "^optimizer 'plain': its state must hold only tensors and plain values"),
    (Falling, lambda s: None, "schedule 'falling': a share must be at least 0, got None"),
    (Falling, lambda s: -s, "schedule 'falling': a share must be at least 0, got -99$"),
    (Falling, raises, f"schedule 'falling'.* {FAILED}"),
    (Shift, lambda x: x[:, :1], rf"{VIEWS} \[4, 1, 16, 16\]; return a view per row"),
    (Spread, lambda h: h, rf"{SCORE} \[8, 32"),
    (Spread, lambda h: None, f"{SCORE} None"),
    (Spread, raises, f"metric 'spread' {FAILED}"),
]


@pytest.mark.parametrize(("kind", "broken", "message"), BROKEN)
def test_a_broken_plugin_is_named_with_its_fault(
    kind: Any, broken: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "broken", staticmethod(broken))
    with all_kinds() as sections:
        model = {"encoder": "pooled"}
        pooled = [{"model": model, "method": method} for method in ("mtcon", "none")]
        alone: dict[Any, Any] = {Own: [{"method": "own"}], OwnEncoder: pooled}
        for each in alone.get(kind, [sections]):
            with pytest.raises(SpecError, match=message):
                try_plugins(spec_of(**each), SIZES)


def test_metrics_have_names_of_their_own() -> None:
    with registered(METRICS, Spread), registered(METRICS, Neighbours):
        for names in (["spread", "spread"], ["spread", "knn"]):
            with pytest.raises(SpecError, match=f"must each have a name .* got {names[1]!r};"):
                spec_of(evaluate={"metrics": names})


def test_a_metric_is_tracked_for_its_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name and label, also of held-out columns. A score that is not finite is left out."""
    data = {**specs.TINY["data"], "tasks": ["shape", "attributes"], "held_out": ["tilt"]}
    score = Mock(side_effect=[1.0, 2.0])
    monkeypatch.setattr(Spread, "broken", score)
    with all_kinds() as sections:
        run = start(spec_of(**{**sections, "data": data}), tmp_path, tmp_path / "run")
        found = run.evaluate(Evaluation.report)
        monkeypatch.setattr(Spread, "broken", staticmethod(lambda h: h.sum() * torch.nan))
        without = run.evaluate(Evaluation.report)
    own = {"test/spread/shape": 1.0, "heldout/spread/tilt": 2.0}
    assert {name: found[name] for name in found.keys() - without.keys()} == own
    assert len(score.call_args_list[0].args[0]) == len(run.dataset.table.rows("test"))


def test_a_cut_training_with_plugins_ends_bit_equal(tmp_path: Path) -> None:
    """Its views are the same in chunks, because the numbers belong to the rows."""
    with all_kinds() as sections:
        spec = spec_of(**sections)
        check_resume(with_values(spec, {"train.batch_size": 14}), tmp_path, tmp_path / "run")
        batches = start(spec, tmp_path, tmp_path / "other")._batches
        parts, _ = batches.chunks(0, 6)
        whole, _ = batches(0)
        plain = with_values(spec, {"views.extra": None})
        shift = whole - start(plain, tmp_path, tmp_path / "plain")._batches(0)[0]
    torch.testing.assert_close(torch.cat([part() for part in parts]), whole, rtol=0, atol=0)
    assert len(shift.mean(dim=(1, 2, 3)).unique()) == len(whole) == 32
    torch.testing.assert_close(shift.std(dim=(1, 2, 3)), torch.zeros(32), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*cases.EACH, "none"])
def test_each_method_of_this_package_passes(name: str) -> None:
    """With both kinds of labels. The generator of the caller is left as it was."""
    state = torch.get_rng_state()
    spec = cases.make_spec(name) if name != "none" else spec_of(method="none")
    assert not spec.used_plugins
    try_plugins(spec, {**SIZES, "attributes": 5})
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_are_not_read(tmp_path: Path) -> None:
    """They may be a download that is not there yet."""
    encoder = {"name": "small", "width": 4, "weights": str(tmp_path / "missing.pt")}
    with registered(METHODS, Own):
        try_plugins(spec_of(method="own", model={"encoder": encoder}), SIZES)


def test_a_plan_tries_the_plugins_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no network would be built."""
    anywhere = ClusterView("any cluster", (NodeKind("any node", 1e9, 1e9, None),))
    monkeypatch.setattr(Own, "broken", staticmethod(raises))
    with registered(METHODS, Own), pytest.raises(SpecError, match="method 'own' failed"):
        plan_of(spec_of(method="own"), tmp_path, anywhere, count_parameters=False)
