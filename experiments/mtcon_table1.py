"""MTCon, table 1: held-out labels of shoes, birds and disaster images.

    python experiments/mtcon_table1.py --budget small --photos FOLDER

Cost: 42 systems, most of them shared with other tables.

Claim: MTCon scores higher on held-out labels than multi-task cross-entropy, CSN and SCE-Net,
except that cross-entropy scores higher on informative.
"""

from experiments.reproduction.above import Above
from experiments.reproduction.command import main
from experiments.reproduction.tables import PaperTable, table_experiment

GAINS = ("brand", "species", "damage_severity", "disaster_types", "humanitarian")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MTCon",
        1,
        systems={
            "XEnt MT": ("xent-kendall",),
            "CSN": ("csn",),
            "SCE-Net": ("scenet",),
            "MTCon": ("mtcon", "mtcon-printed", "mtcon-equal"),
        },
        above=[
            Above("MTCon", "XEnt MT", GAINS),
            Above("XEnt MT", "MTCon", ("informative",)),
            Above("MTCon", "CSN", (*GAINS, "informative")),
            Above("MTCon", "SCE-Net", (*GAINS, "informative")),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
