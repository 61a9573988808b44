"""MultiSupCon, table 1 as a curve: mean average precision against the threshold of positives.

    python experiments/multisupcon_threshold.py --budget small --photos FOLDER

Cost: 9 trainings a seed, 5 at smoke, and the two baselines, most of them shared with table 1. On
two cores a minute at smoke.

Claim: the best threshold is neither 0.1, which is worse than SimCLR, nor 1, which is SupCon on
equal label sets.

The values of MultiSupCon (Zaigrajew and Zieba) with further thresholds between them.
"""

from collections.abc import Mapping

import pandas as pd

from experiments.reproduction.cells import BASELINES, SYSTEMS, Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Claim, Experiment, Outcome, Trained, described
from experiments.reproduction.figures import Curve, CurvePanel, curves_figure, fixed, level
from experiments.reproduction.grids import BANDS_NOTE
from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from experiments.reproduction.judging import judge
from experiments.reproduction.paper import values_of
from experiments.reproduction.tables import SPLITS_NOTE

DATA, LABEL, METRIC = "celeba_64", "40_attributes", "mAP_percent_val"
FEW, ALL = (0.1, 0.3, 0.5, 1.0), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
SIMCLR = Cell(DATA, "simclr")
WITHOUT_TRAINING = [Cell(DATA, system) for system in BASELINES]
# The paper's methods with their threshold.
METHODS = {"MultiSupCon_0.1": 0.1, "MultiSupCon_0.3": 0.3, "MultiSupCon_0.5": 0.5, "SupCon": 1.0}


def cell(threshold: float) -> Cell:
    """Returns the training with a threshold, shared with table 1 for the paper's thresholds."""
    system = f"multisupcon-{threshold}"
    if system in SYSTEMS:
        return Cell(DATA, system)
    return Cell(DATA, "multisupcon-0.5", changes=(("method.threshold", threshold),))


def thresholds(setting: Setting) -> tuple[float, ...]:
    """Returns the thresholds."""
    return FEW if setting.budget.name == "smoke" else ALL


def cells(setting: Setting) -> list[Cell]:
    """Returns the training of each threshold, SimCLR and the baselines."""
    return [*map(cell, thresholds(setting)), SIMCLR, *WITHOUT_TRAINING]


def printed() -> dict[str, float]:
    """Returns the paper's mean average precision in percent, by its name of the method."""
    return {v.method: v.value for v in values_of("MultiSupCon", 1) if v.metric == METRIC}


def claims() -> list[Claim]:
    """Returns the claims about the ends of the curve."""
    paper, low, middle, equal = printed(), "MultiSupCon_0.1", "MultiSupCon_0.5", "SupCon"
    return [
        Claim(SIMCLR, cell(0.1), LABEL, paper=paper["SimCLR"] - paper[low]),
        Claim(cell(0.5), cell(0.1), LABEL, paper=paper[middle] - paper[low]),
        Claim(cell(0.5), cell(1.0), LABEL, paper=paper[middle] - paper[equal]),
    ]


def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
    """Returns the curve with the paper's values, and the verdicts on its ends."""
    xs, paper = thresholds(setting), printed()
    at_paper = {x: paper[method] for method, x in METHODS.items()}
    ours = {x: percent_of(trained[cell(x)].interval(LABEL)) for x in xs}
    others = {each: trained[each].interval(LABEL) for each in (SIMCLR, *WITHOUT_TRAINING)}
    lines = [(f"{x:g}", at_paper.get(x), ours[x]) for x in xs]
    lines += [(c.title, paper.get(c.title), percent_of(found)) for c, found in others.items()]
    table = pd.DataFrame(
        {
            "threshold": name,
            "the paper (%)": value,
            **interval_columns("ours (%)", interval),
            "difference (points)": interval.value - value if interval and value else None,
        }
        for name, value, interval in lines
    )
    source = trained[SIMCLR].source
    pictures = {}
    if source is not None and all(others.values()) and any(ours.values()):
        panel = CurvePanel(
            source.name_label(LABEL),
            "mean average precision (%)",
            {"ours, MultiSupCon": Curve(xs, [*ours.values()])},
            {
                **{f"ours, {c.title}": level(xs, found) for c, found in others.items()},
                "the paper, CelebA": fixed([*at_paper], [*at_paper.values()]),
            },
        )
        pictures["Threshold"] = curves_figure([panel], "Jaccard threshold (no unit)")
    verdicts = judge(setting, trained, claims())
    notes = ["The paper prints no deviations.", SPLITS_NOTE, BANDS_NOTE]
    return Outcome(table, pictures, verdicts, notes, readable=readable(table))


EXPERIMENT = Experiment(*described(__file__, __doc__), cells, finish, claims)

if __name__ == "__main__":
    main(EXPERIMENT)
