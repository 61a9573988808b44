"""MTCon, table 6: each network on each task of disaster images, trained on it or not.

    python experiments/mtcon_table6.py --budget small --photos FOLDER

Cost: 17 systems, most of them shared with other tables.

Claim: MTCon scores higher in each task than the SupCon network of any other task.
"""

from experiments.reproduction.above import off_diagonal, single_task
from experiments.reproduction.command import main
from experiments.reproduction.tables import MULTI_TASK, PaperTable, table_experiment

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
        "MTCon",
        6,
        systems={**single_task(TASKS), **MULTI_TASK},
        above=[
            *off_diagonal("MTCon", "XEnt", TASKS),
            *off_diagonal("MTCon", "SupCon", TASKS),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
