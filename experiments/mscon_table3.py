"""MSCon, table 3: the brand of shoes, which no training saw.

    python experiments/mscon_table3.py --budget small --photos FOLDER

Cost: 6 systems, most of them shared with other tables.

Claim: MSCon scores ten points higher on the held-out brand than multi-task cross-entropy.
"""

from experiments.reproduction.above import Above
from experiments.reproduction.command import main
from experiments.reproduction.tables import PaperTable, table_experiment

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MSCon",
        3,
        systems={"XEnt MT": ("xent-multi",), "MSCon": ("mtcon", "mtcon-printed", "mtcon-equal")},
        above=[Above("MSCon", "XEnt MT", ("brand",), margin=10)],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
