"""MTCon, table 3: tasks of disaster images in domain.

    python experiments/mtcon_table3.py --budget small --photos FOLDER

Cost: 17 systems, most of them shared with other tables.

Claim: MTCon scores higher in each task than SupCon on that task, SimCLR, CSN and SCE-Net, and
higher than cross-entropy in disaster types; multi-task cross-entropy scores higher in humanitarian
and informative, and cross-entropy higher than CSN and SCE-Net.
"""

from experiments.reproduction.above import Above
from experiments.reproduction.command import main
from experiments.reproduction.tables import IN_DOMAIN, PaperTable, table_experiment

OTHERS = ("XEnt", "XEnt MT", "SupCon", "SimCLR", "CSN", "SCE-Net")
TASKS = ("damage_severity", "disaster_types", "humanitarian", "informative")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MTCon",
        3,
        systems=IN_DOMAIN,
        above=[
            *(Above("MTCon", than, TASKS) for than in OTHERS),
            *(Above("XEnt", than, TASKS) for than in ("CSN", "SCE-Net")),
            Above("XEnt MT", "MTCon", ("humanitarian", "informative")),
        ],
        corrections={("SupCon", "humanitarian"): 80.36},
        note="The printed 74.89 of SupCon on humanitarian is that network's accuracy on disaster "
        "types. The claims have the 80.36 of table 6 in its place.",
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
