"""MultiSupCon, table 1: forty attributes of faces.

    python experiments/multisupcon_table1.py --budget small --photos FOLDER

Cost: 7 systems, most of them shared with other tables; `small` 15 minutes on 2 cores.

Claim: with a threshold of 0.5 MultiSupCon scores higher than SupCon on equal label sets, which
scores higher than SimCLR; a threshold of 0.1 is worse than all of them.
"""

from itertools import pairwise

from experiments.reproduction.command import main
from experiments.reproduction.tables import Above, PaperTable, table_experiment

BEST_FIRST = ("MultiSupCon_0.5", "MultiSupCon_0.3", "SupCon", "SimCLR", "MultiSupCon_0.1")

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MultiSupCon",
        1,
        systems={
            "MultiSupCon_0.1": ("multisupcon-0.1",),
            "MultiSupCon_0.3": ("multisupcon-0.3",),
            "MultiSupCon_0.5": ("multisupcon-0.5",),
            "SupCon": ("multisupcon-1.0",),
            "SimCLR": ("simclr",),
        },
        above=[Above(better, than, ("40_attributes",)) for better, than in pairwise(BEST_FIRST)],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
