"""CCN, table 1: one network for all similarities of shoes, and the held-out brand.

    python experiments/ccn_table1.py --budget small --photos FOLDER

Cost: 11 systems, most of them shared with other tables; `small` 25 minutes on 2 cores.

Claim: one network trained on all tasks (CCN) scores higher than multi-task cross-entropy, CSN and
the SupCon network of each task, on the tasks and on the held-out brand.
"""

from experiments.reproduction.command import main
from experiments.reproduction.tables import Above, PaperTable, single_task, table_experiment

TASKS = ("category", "closure", "gender")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "CCN",
        1,
        systems={
            **single_task({"category": "Category", "closure": "Closure", "gender": "Gender"}),
            "XEnt Multi": ("xent-multi",),
            "CSN": ("csn",),
            "CCN (Ours)": ("mtcon-equal",),
        },
        above=[
            Above("CCN (Ours)", "XEnt Multi", (*TASKS, "brand")),
            Above("CCN (Ours)", "CSN", (*TASKS, "brand")),
            *(Above("CCN (Ours)", f"SupCon {task.title()}", (task, "brand")) for task in TASKS),
        ],
        # The other papers have buckles where CCN has zippers.
        own_data=(("closures", "ccn"),),
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
