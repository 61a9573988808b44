"""MSCon, table 1: tasks of shoes in domain.

    python experiments/mscon_table1.py --budget small --photos FOLDER

Cost: 13 systems, most of them shared with other tables; `small` 30 minutes on 2 cores.

Claim: MSCon scores higher in each task than SupCon trained on that task alone, and than multi-task
cross-entropy, SimCLR and CSN.
"""

from experiments.reproduction.command import main
from experiments.reproduction.tables import Above, PaperTable, table_experiment

TASKS = ("category", "closure", "gender")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MSCon",
        1,
        systems={
            "XEnt Cat": ("xent:category",),
            "XEnt Clo": ("xent:closure",),
            "XEnt Gend": ("xent:gender",),
            "XEnt MT": ("xent-multi",),
            "SimCLR": ("simclr",),
            "SupCon Cat": ("supcon:category",),
            "SupCon Clo": ("supcon:closure",),
            "SupCon Gen": ("supcon:gender",),
            "CSN": ("csn",),
            "MSCon": ("mtcon", "mtcon-equal"),
        },
        above=[
            *(Above("MSCon", than, TASKS) for than in ("XEnt MT", "SimCLR", "CSN")),
            Above("MSCon", "SupCon Cat", ("category",)),
            Above("MSCon", "SupCon Clo", ("closure",)),
            Above("MSCon", "SupCon Gen", ("gender",)),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
