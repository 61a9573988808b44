"""MSCon, table 2: tasks of disaster images in domain.

    python experiments/mscon_table2.py --budget small --photos FOLDER

Cost: 16 systems, most of them shared with other tables.

Claim: MSCon scores higher in each task than SimCLR, CSN, SupCon on that task and networks of other
tasks, and higher than multi-task cross-entropy in disaster types; cross-entropy scores higher in
humanitarian and informative.
"""

from experiments.reproduction.above import Above, diagonal, off_diagonal, single_task
from experiments.reproduction.command import main
from experiments.reproduction.tables import PaperTable, table_experiment

TASKS = {
    "damage_severity": "Damage severity",
    "disaster_types": "Disaster types",
    "humanitarian": "Humanitarian",
    "informative": "Informative",
}

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MSCon",
        2,
        systems={
            **single_task(TASKS),
            "XEnt Multi-Task": ("xent-multi",),
            "SimCLR": ("simclr",),
            "CSN": ("csn",),
            "MSCon": ("mtcon", "mtcon-printed", "mtcon-equal"),
        },
        above=[
            *(Above("MSCon", than, tuple(TASKS)) for than in ("SimCLR", "CSN")),
            *(
                claim
                for than in ("XEnt", "SupCon")
                for make in (diagonal, off_diagonal)
                for claim in make("MSCon", than, TASKS)
            ),
            Above("MSCon", "XEnt Multi-Task", tuple(TASKS)),
            Above("XEnt Multi-Task", "MSCon", ("humanitarian", "informative")),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
