"""MSCon, table 4: each task of disaster images in turn, held out.

    python experiments/mscon_table4.py --budget small --photos FOLDER

Cost: 18 systems, most of them shared with other tables.

Claim: MSCon scores higher than multi-task cross-entropy on each held-out task but informative,
where it scores lower.
"""

from experiments.reproduction.above import Above
from experiments.reproduction.command import main
from experiments.reproduction.tables import PaperTable, table_experiment

EXPERIMENT = table_experiment(
    __file__,
    __doc__,
    PaperTable(
        "MSCon",
        4,
        systems={"XEnt MT": ("xent-multi",), "MSCon": ("mtcon", "mtcon-printed", "mtcon-equal")},
        above=[
            Above("MSCon", "XEnt MT", ("damage_severity", "disaster_types", "humanitarian")),
            Above("XEnt MT", "MSCon", ("informative",)),
        ],
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
