"""MultiSupCon, table 1: forty attributes of faces.

    python experiments/multisupcon_table1.py --budget small --photos FOLDER

Cost: 7 systems, most of them shared with other tables; `small` 15 minutes on 2 cores.

Claim: MultiSupCon scores higher with a threshold of 0.5 than of 0.3, with 0.3 higher than SupCon on
equal label sets, SupCon higher than SimCLR, and SimCLR higher than a threshold of 0.1.
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
