"""MTCon, table 5: each network on each task of birds, trained on it or not.

    python experiments/mtcon_table5.py --budget small --photos FOLDER

Cost: 15 systems, most of them shared with other tables.

Claim: MTCon scores higher in each task than the SupCon network of any other task.
"""

from experiments.reproduction.above import off_diagonal, single_task
from experiments.reproduction.command import main
from experiments.reproduction.tables import MULTI_TASK, PaperTable, table_experiment

TASKS = {"shape": "Shape", "size": "Size", "primary_color": "Primary Color"}

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MTCon",
        5,
        systems={**single_task(TASKS), **MULTI_TASK},
        above=[
            *off_diagonal("MTCon", "XEnt", TASKS),
            *off_diagonal("MTCon", "SupCon", TASKS),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
