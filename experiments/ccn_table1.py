"""CCN, table 1: one network for all similarities of shoes, and the held-out brand.

    python experiments/ccn_table1.py --budget small --photos FOLDER

Cost: 11 systems, most of them shared with other tables.

Claim: one network trained on all tasks (CCN) scores higher than multi-task cross-entropy, CSN and
the networks of one task, on the tasks and most of all on the held-out brand.
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.reproduction.cells import Cell
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Trained
from experiments.reproduction.tables import (
    Above,
    PaperTable,
    diagonal,
    off_diagonal,
    single_task,
    table_experiment,
)
from experiments.reproduction.trends import (
    Tested,
    combined,
    difference_of,
    difference_tested,
    mean_of,
)

# The other papers have buckles in place of CCN's zippers.
OWN_DATA = (("closures", "ccn"),)

TASKS = {"category": "Category", "closure": "Closure", "gender": "Gender"}


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
    PaperTable(
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
