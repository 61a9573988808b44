"""CCN, table 1: one network for all similarities of shoes, and the held-out brand.

    python experiments/ccn_table1.py --budget small --photos FOLDER

Cost: 11 systems, most of them shared with other tables.

Claim: one network trained on all tasks (CCN) scores higher than multi-task cross-entropy, CSN and
the networks of one task, on the tasks and most of all on the held-out brand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import pandas as pd

from experiments.reproduction.above import Above, diagonal, off_diagonal, single_task
from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Outcome, Tested, Trained
from experiments.reproduction.tables import PaperTable, table_experiment
from experiments.reproduction.trends import combined, difference_of, difference_tested, mean_of
from mtcon_ray.evaluation.predictions import load_predictions

# The other papers have buckles in place of CCN's zippers.
OWN_DATA = (("closures", "ccn"),)

TASKS = {"category": "Category", "closure": "Closure", "gender": "Gender"}


NUM_PARTS = 5
PARTS = "± parts"
PARTS_NOTE = (
    "± parts: as the paper's deviation, the standard deviation of the accuracy over five parts of "
    "the test items, mean over seeds. The parts are random, disjoint and the same for all systems."
)


@dataclass(frozen=True)
class TableWithParts(PaperTable):
    """A table that also has the deviation of our values over parts of the test items."""

    def finish(self, setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
        """Returns table, picture and verdicts."""
        found = super().finish(setting, trained)
        over = [over_parts(trained[line.cell], line.label) for line in self.lines()]
        table = found.table.assign(**{PARTS: pd.Series(over, dtype=float)})
        shown, notes = found.shown.join(table[PARTS]), [*found.notes, PARTS_NOTE]
        return replace(found, table=table, readable=shown, notes=notes)


def over_parts(trained: Trained, label: str) -> float | None:
    """Returns the mean over seeds of `deviation` in percent, None without stored predictions."""
    if (results := trained.row.results) is None:
        return None
    split, column = trained.place(label)
    place = split, results.labels.slugs[column]
    stored = [load_predictions(results.predictions_of(t)) or {} for t in trained.row.finished]
    own = [found[place] for found in stored if place in found]
    return fmean(100 * deviation(p.predicted == p.truth) for p in own) if own else None


def deviation(right_n: np.ndarray) -> float:
    """Returns the standard deviation of the accuracy over random disjoint parts of n items."""
    order_n = np.random.default_rng(0).permutation(len(right_n))
    return float(np.std([right_n[p].mean() for p in np.array_split(order_n, NUM_PARTS)], ddof=1))


def benefit_is_greatest_on_the_brand(trained: Mapping[Cell, Trained]) -> list[Tested]:
    """Returns the test of CCN's larger gain over multi-task cross-entropy on the held-out label."""
    ours, xent = (
        trained[Cell("zappos50k", system, own_data=OWN_DATA)]
        for system in ("mtcon-equal", "xent-multi")
    )
    gains = mean_of([difference_of(ours, xent, task) for task in TASKS])
    more = combined(lambda s: s[0] - s[1], [difference_of(ours, xent, "brand"), gains])
    text = "CCN gains more over XEnt Multi on brand than on the tasks' mean"
    return [replace(difference_tested(text, more), is_held_out=True)]


EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    TableWithParts(
        "CCN",
        1,
        systems={
            **single_task(TASKS),
            "XEnt Multi": ("xent-multi",),
            "CSN": ("csn",),
            "CCN (Ours)": ("mtcon-equal",),
        },
        above=[
            Above("CCN (Ours)", "XEnt Multi", (*TASKS, "brand")),
            Above("CCN (Ours)", "CSN", (*TASKS, "brand")),
            *(
                claim
                for than in ("XEnt", "SupCon")
                for claim in (
                    *diagonal("CCN (Ours)", than, TASKS),
                    *off_diagonal("CCN (Ours)", than, TASKS),
                    *(
                        Above("CCN (Ours)", f"{than} {word}", ("brand",), pool=f"{than} networks")
                        for word in TASKS.values()
                    ),
                )
            ),
        ],
        also=benefit_is_greatest_on_the_brand,
        own_data=OWN_DATA,
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
