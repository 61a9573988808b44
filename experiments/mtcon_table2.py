"""MTCon, table 2: tasks of shoes and birds in domain.

    python experiments/mtcon_table2.py --budget small --photos FOLDER

Cost: 30 systems, most of them shared with other tables.

Claim: MTCon scores higher in each task than multi-task cross-entropy, SupCon on that task and
SCE-Net.
"""

from experiments.reproduction.above import Above
from experiments.reproduction.command import main
from experiments.reproduction.tables import IN_DOMAIN, PaperTable, table_experiment

TASKS = ("category", "closure", "gender", "shape", "size", "primary_color")
OTHERS = ("XEnt MT", "XEnt", "SimCLR", "SupCon", "CSN", "SCE-Net")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MTCon",
        2,
        systems=IN_DOMAIN,
        above=[
            *(Above("MTCon", than, TASKS) for than in OTHERS),
            *(Above("XEnt", than, TASKS) for than in ("CSN", "SCE-Net")),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
