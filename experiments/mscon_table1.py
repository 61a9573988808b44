"""MSCon, table 1: tasks of shoes in domain.

    python experiments/mscon_table1.py --budget small --photos FOLDER

Cost: 14 systems, most of them shared with other tables.

Claim: MSCon scores higher in each task than SupCon trained on that task alone, and than multi-task
cross-entropy, SimCLR and CSN.
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.reproduction.above import Above, diagonal, off_diagonal
from experiments.reproduction.cells import Cell
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Tested, Trained
from experiments.reproduction.tables import PaperTable, table_experiment
from experiments.reproduction.trends import seeds_tested

TASKS = ("category", "closure", "gender")
WORDS = {"XEnt": ("Cat", "Clo", "Gend"), "SupCon": ("Cat", "Clo", "Gen")}


def closure_weighs_more_than_gender(trained: Mapping[Cell, Trained]) -> list[Tested]:
    """Returns the test of the statement in MSCon's introduction, on the learned weights."""
    ours = trained[Cell("zappos50k", "mtcon")]
    closure, gender = (ours.weights(task) for task in ("closure", "gender"))
    by_seed = [a - b for a, b in zip(closure, gender, strict=True)]
    text = "MSCon's learned weight of closure above that of gender"
    label = f"{ours.name_label('closure')}, {ours.name_label('gender')}"
    tested = seeds_tested(text, by_seed, in_points=False)
    has_classes = ours.source is not None and not ours.source.is_stand_in
    return [replace(tested, label=label, has_classes=has_classes)]


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
            "MSCon": ("mtcon", "mtcon-printed", "mtcon-equal"),
        },
        above=[
            *(Above("MSCon", than, TASKS) for than in ("XEnt MT", "SimCLR", "CSN")),
            *(
                claim
                for than, words in WORDS.items()
                for make in (diagonal, off_diagonal)
                for claim in make("MSCon", than, dict(zip(TASKS, words, strict=True)))
            ),
        ],
        also=closure_weighs_more_than_gender,
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
