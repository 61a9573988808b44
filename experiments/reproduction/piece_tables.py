"""Tables, verdicts, picture and archive of a piece."""

import shutil
from pathlib import Path

import pandas as pd

from experiments.reproduction.drawing import LACKING, draw_table
from experiments.reproduction.experiment import Tested
from experiments.reproduction.judging import in_points
from experiments.reproduction.pieces import HELD_OUT, LABELS, PROBE, Run
from experiments.reproduction.trends import combined, differences_tested
from mtcon_ray.display.presentation import p_text
from mtcon_ray.evaluation.intervals import Scores, detectable, holm, judge


def tested(run: Run) -> list[Tested]:
    """Returns the tests of the piece's claims, not yet corrected for each other.

    Claims about probes share a least variance over seeds, and so do claims about retrieval.
    """
    differences: dict[bool, dict[str, Scores | None]] = {True: {}, False: {}}
    for claim in run.piece.claims:
        sides = (claim.better, claim.than), (claim.than, claim.better)
        pair = [run.scores(*one, claim.label, other[0]) for one, other in sides]
        difference = combined(lambda s: s[0] - s[1], pair)
        differences[claim.better[1] == PROBE][str(claim)] = difference
    found = {t.claim: t for each in differences.values() for t in differences_tested(each)}
    return [found[str(claim)] for claim in run.piece.claims]


def verdicts(tests: list[Tested]) -> pd.DataFrame:
    """Returns a row per claim, with p corrected by Holm's procedure for all claims of the piece."""
    corrected = iter(holm([each.p for each in tests if each.p is not None]))
    rows = []
    for each in tests:
        p = None if each.p is None else next(corrected)
        smallest = each.error and detectable(each.error, sum(t.p is not None for t in tests))
        answer = judge(each.difference, p=p) if each.difference and p is not None else each.why
        rows.append(
            {
                "claim": each.claim,
                "difference": each.ours,
                "detectable": in_points(smallest),
                "p (Holm)": "" if p is None else p_text(p),
                "verdict": answer,
            }
        )
    return pd.DataFrame(rows)


def picture(run: Run) -> bytes:
    """Draws the probes of all systems with a finished training, a panel for each label."""
    rows = []
    for label in LABELS:
        for system in run.piece.systems:
            if scores := run.scores(system.title, PROBE, label):
                deviation = scores.drawn_SK.mean(axis=0).std()
                held_out = "yes" if label in HELD_OUT else "no"
                place = {"data": "shoes", "label": label, "held out": held_out}
                names = {"metric": "probe accuracy", "method": LACKING, "ours is": system.title}
                ours = {"ours": 100 * scores.score_S.mean(), "± items": 100 * deviation}
                rows.append({**place, **names, "paper": None, "± paper": None, **ours})
    return draw_table(pd.DataFrame(rows))


def write(run: Run) -> Path:
    """Writes results.csv, claims.csv, systems.png, and an archive with all per-item results."""
    run.folder.mkdir(parents=True, exist_ok=True)
    found = run.finished()
    rows = [
        {"system": system, "seed": seed, "metric": name, "value": value}
        for (system, seed), values in found.items()
        for name, value in values.items()
    ]
    pd.DataFrame(rows).to_csv(run.folder / "results.csv", index=False)
    verdicts(tested(run)).to_csv(run.folder / "claims.csv", index=False)
    if found:
        (run.folder / "systems.png").write_bytes(picture(run))
    packed = run.folder / "packed"
    shutil.copytree(
        run.folder,
        packed,
        ignore=shutil.ignore_patterns("*.pt", "packed"),
        dirs_exist_ok=True,
    )
    archive = shutil.make_archive(str(run.folder), "gztar", packed)
    shutil.rmtree(packed)
    return Path(archive)
