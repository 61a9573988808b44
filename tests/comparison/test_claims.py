"""A comparison with stored predictions: intervals in cells and figure, claims with verdicts."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.comparison import claims
from mtcon_ray.comparison.claims import Judged, as_csv, judged
from mtcon_ray.comparison.comparison_spec import ClaimSpec
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.summary import markdown
from mtcon_ray.evaluation.intervals import Scores, mean_interval
from mtcon_ray.spec.run_spec import parse_spec
from tests.recorded import results_of, save_wrong, trial_of
from tests.some import some

DATA = {"kind": "synthetic", "tasks": ["shape"], "held_out": ["tilt"]}
NUM_ITEMS = 1000
MakeRow = Callable[..., Row]


@pytest.fixture
def row(tmp_path: Path) -> MakeRow:
    """Returns a function that makes a row from accuracies by seed, without training.

    The items that are right are drawn at random, for tilt with half the accuracy. The same items
    are hard for all systems. Handcrafted features have the same result with each seed.
    """
    hard_N = np.random.default_rng(0).random(NUM_ITEMS)

    def make(
        title: str, shares: Sequence[float], *, stored: bool = True, moved: int = 0,
        method: str = "mtcon", encoder: str = "small", dim: int | None = None, probe: str = "lbfgs",
    ) -> Row:  # fmt: skip
        model = {"encoder": encoder, "embedding_dim": dim}
        evaluate = {"probe": {"solver": probe}}
        sections = {"data": DATA, "method": method, "model": model, "evaluate": evaluate}
        spec = parse_spec({"name": "x", **sections})
        trials, folder = [], tmp_path / title
        for seed, share in enumerate(shares):
            number = 0 if encoder == "handcrafted" else seed
            random, wrong = np.random.default_rng(number + len(title)), {}
            values = {"val/accuracy": share}
            for split, label, factor in (("test", "shape", 1.0), ("heldout", "tilt", 0.5)):
                right = 0.8 * hard_N + 0.2 * random.random(NUM_ITEMS) < share * factor
                wrong[split, label] = ~right
                values[f"{split}/accuracy/{label}"] = float(right.mean())
                values[f"{split}/accuracy_std/{label}"] = 0.02
            trials.append(trial_of(seed, 2, values, seed=seed))
            if stored:
                path = folder / "checkpoints" / trials[-1].name / "predictions.npz"
                save_wrong(path, wrong, first_row=moved)
        return Row(title, results_of(spec, *trials, folder=folder))

    return make


def claim(better: str, than: str, label: str = "shape", margin: float = 0.0) -> ClaimSpec:
    return ClaimSpec(better=better, than=than, label=label, margin=margin)


def test_a_cell_has_the_mean_over_seeds_with_its_interval(row: MakeRow) -> None:
    """An interval of one seed is marked; without predictions the cell has the mean alone."""
    rows = [row("A", [0.70, 0.72, 0.71]), row("B", [0.6]), row("C", [0.5, 0.5], stored=False)]
    value, low, high, _ = mean_interval(some(rows[0].scores("test", "shape")))
    assert low < value < high
    assert value == pytest.approx(rows[0].reading("test", "shape").value)
    lines = markdown(rows).splitlines()
    assert f"| **{value:.3f} [{low:.3f}, {high:.3f}]** |" in lines[2]
    assert lines[3].count("]¹") == 2
    assert "[" not in lines[4]
    notes = [line.split(":")[0] for line in lines[6:]]
    assert notes == ["In square brackets", "¹ One seed, of either side"]


def test_claims_have_the_paired_difference_and_a_verdict(row: MakeRow) -> None:
    """A difference above zero that may be below the margin does not decide the claim."""
    rows = [row("A", [0.70, 0.72, 0.71]), row("BB", [0.65, 0.66, 0.64]), row("one", [0.7])]
    claims = [claim("A", "BB"), claim("A", "BB", margin=0.2), claim("BB", "A", "tilt", 0.1)]
    claims += [claim("A", "one"), claim("A", "not chosen by --only")]
    first, *_, single = found = judged(rows, claims)
    verdicts = ["holds", "does not hold", "does not hold", "undecided"]
    assert [each.verdict for each in found] == verdicts
    a, b = (row.reading("test", "shape").value or 0 for row in rows[:2])
    value, low, high, _ = some(first.difference)
    assert value == pytest.approx(a - b)
    assert low < value < high
    (near,) = judged(rows, [claim("A", "BB", margin=value - 0.002)])
    assert near.verdict == "undecided"
    assert not some(single.difference).over_seeds
    assert [each.p is None for each in found] == [False, False, False, True]
    text = markdown(rows, claims)
    interval = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
    cells = f"{interval} | {some(first.detectable):.3f} | {some(first.p_holm):.3f} | holds |"
    assert f"| A above BB | shape | {cells}" in text
    assert "| A above BB by 0.2 | shape |" in text
    read = list(csv.DictReader(as_csv([*found, Judged(claim("A", "C"), None, "why")]).splitlines()))
    assert (read.pop()["why"], read[0]["difference"]) == ("why", str(value))
    assert (read[0]["better"], read[0]["label"], read[0]["verdict"]) == ("A", "shape", "holds")
    assert float(read[0]["low"]) == low
    assert [line["over_seeds"] for line in read] == ["True"] * 3 + ["False"]
    assert (float(read[0]["p"]), read[3]["p"]) == (first.p, "")
    assert "corrected for the number of tested claims (3). Intervals are not" in text


def test_claims_of_one_table_are_corrected_together(row: MakeRow) -> None:
    """A claim that holds alone is undecided beside nine others; its interval stays as it is."""
    rows = [row("A", [0.70, 0.72, 0.71]), row("BB", [0.65, 0.66, 0.64])]
    (alone,) = judged(rows, [claim("A", "BB")])
    p = some(alone.p)
    assert 0.005 < p < 0.05
    assert (alone.p_holm, alone.verdict) == (p, "holds")
    together = judged(rows, [claim("A", "BB")] * 10)
    assert {each.p_holm for each in together} == {10 * p}
    assert {each.verdict for each in together} == {"undecided"}
    assert (together[0].detectable or 0) > (alone.detectable or 1)
    assert {each.difference for each in together} == {alone.difference}
    assert f"| {10 * p:.3f} | undecided |" in markdown(rows, [claim("A", "BB")] * 10)


def test_seeds_that_agree_by_chance_decide_less_beside_others_that_differ(row: MakeRow) -> None:
    rows = [row("A", [0.70, 0.70, 0.70]), row("BB", [0.65, 0.65, 0.65]), row("C", [0.5, 0.6, 0.8])]
    (alone,) = judged(rows, [claim("A", "BB")])
    first, wide = judged(rows, [claim("A", "BB"), claim("C", "BB")])
    (wide_alone,) = judged(rows, [claim("C", "BB")])
    assert some(first.p) > 10 * some(alone.p)
    assert wide.p == pytest.approx(some(wide_alone.p), rel=0.05)


def test_fixed_features_count_once_however_many_seeds_they_have(row: MakeRow) -> None:
    """Equal results would halve the variance over seeds of the other system in the difference."""
    trained = [row("A", [0.70, 0.72, 0.71]), row("BB", [0.66, 0.69, 0.62])]
    found = []
    for title, shares in (("fixed", [0.68]), ("equal", [0.68] * 3)):
        fixed = row(title, shares, method="none", encoder="handcrafted")
        claims = [claim("A", title), claim("BB", title), claim("A", "BB")]
        found.append([each.p for each in judged([*trained, fixed], claims)])
    assert found[0] == found[1]
    by_sgd = row("sgd", [0.68, 0.6, 0.7], method="none", encoder="handcrafted", probe="sgd")
    assert some(judged([*trained, by_sgd], [claim("A", "sgd")])[0].scores)[1].seeds == (0, 1, 2)


def test_variances_over_seeds_are_those_of_a_kind_and_count_each_seed_once(row: MakeRow) -> None:
    def scores(values: list[float], truth: np.ndarray) -> Scores:
        drawn_SK = np.array(values)[:, None] + 0.001 * np.random.default_rng(0).normal(size=200)
        return Scores((0, 1, 2), np.array(values), drawn_SK, np.arange(len(truth)), truth)

    codes, bits = np.zeros(9, dtype=np.int64), np.zeros((9, 2), dtype=np.uint8)
    shape = scores([0.70, 0.71, 0.72], codes), scores([0.60, 0.61, 0.61], codes)
    looks = scores([0.0, 5.0, -5.0], bits), scores([0.0, -9.0, 9.0], bits)
    found = [claims.Judged(claim("A", "BB"), None, scores=each) for each in (shape, looks, shape)]
    variances = claims._seed_variances(found)
    assert variances["classes"].freedom == variances["set"].freedom == 2
    assert variances["classes"] == claims._seed_variances(found[:1])["classes"]
    turned = claims.Judged(claim("BB", "A"), None, scores=shape)
    assert claims._seed_variances([*found[:1], turned])["classes"].freedom == 2
    assert claims.planned(2000, 3, 2, 1, 1) > claims.planned(2000, 3, 2, 2, 1)


def test_a_single_group_of_items_decides_nothing(
    row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, scores = [row("A", [0.9, 0.92, 0.91]), row("BB", [0.1, 0.12, 0.11])], Row.scores
    one = np.zeros(NUM_ITEMS, dtype=np.int64)
    monkeypatch.setattr(Row, "scores", lambda *a: some(scores(*a))._replace(groups=one))
    (found,) = judged(rows, [claim("A", "BB")])
    assert (found.verdict, found.why) == ("undecided", "a single group of test items")


def test_few_seeds_are_not_judged_unless_a_system_does_not_depend_on_them(row: MakeRow) -> None:
    """The difference is shown all the same, and other claims are not corrected for it."""
    rows = [row("A", [0.70, 0.72, 0.71]), row("two", [0.5, 0.5]), row("single", [0.5])]
    kinds = {"random": "small", "fixed": "handcrafted", "other": "handcrafted"}
    rows += [row(title, [0.5], method="none", encoder=kind) for title, kind in kinds.items()]
    rows += [row("new layer", [0.5], method="none", encoder="handcrafted", dim=8)]
    pairs = [("A", "two"), ("single", "two"), ("two", "fixed"), ("A", "random")]
    pairs += [("A", "fixed"), ("fixed", "other"), ("A", "new layer")]
    found = judged(rows, [claim(better, than) for better, than in pairs])
    reasons = [f"{few}, at least 3 are needed" for few in 2 * ("2 seeds", "1 seed")]
    assert [each.why for each in found] == [*reasons, "", "", reasons[1]]
    assert [each.verdict for each in found] == ["undecided"] * 4 + ["holds"] + ["undecided"] * 2
    assert found[4].p_holm == 2 * some(found[4].p)
    over_seeds = [each.difference.over_seeds for each in found if each.difference]
    assert over_seeds == [True, False, True, False, True, False, False]
    text = markdown(rows, [claim("A", "two")])
    assert "| — | — | undecided: 2 seeds, at least 3 are needed |" in text
    assert "p (Holm):" not in text


def test_what_cannot_be_compared_is_undecided_and_says_why(row: MakeRow) -> None:
    rows = [row("A", [0.7]), row("old", [0.6], stored=False), row("moved", [0.6], moved=1)]
    rows.append(Row("failed", None, "no triplets"))
    reasons = {
        "old": "no stored predictions",
        "moved": "measured on different items",
        "failed": "failed has no finished training",
    }
    found = judged(rows, [claim("A", other) for other in reasons])
    assert {each.claim.than: each.why for each in found} == reasons
    assert {each.verdict for each in found} == {"undecided"}
    text = markdown(rows, [claim("A", "failed", label="tilt")])
    assert "| A above failed | tilt | — | — | — | undecided: failed has no" in text
