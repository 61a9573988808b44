"""Running of experiments: missing trainings first, then files and verdicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from experiments.reproduction.cells import BASELINES, Cell, Setting, unique
from experiments.reproduction.data import DATA_SETS, DataSet, MissingImagesError, Source
from experiments.reproduction.experiment import Done, Experiment, Trained
from experiments.reproduction.files import write
from experiments.reproduction.power import power_lines
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.comparison.claims import MIN_SEEDS
from mtcon_ray.comparison.comparison_spec import Comparison
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.stages import plan_stages, stage_lines
from mtcon_ray.comparison.summary import gauges
from mtcon_ray.comparison.tuning import Tuning
from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.spec.run_spec import RunSpec

STAND_INS = (
    "Where images are not the paper's, only the order of methods can be compared with it, not the "
    "values: {names}."
)

CLASSES_NOTE = (
    "Labels with at least twice, or at most half of, the paper's number of classes: {labels}. More "
    "classes make a label harder for all systems, so the sizes of differences are not the paper's."
)

VIEWS_NOTE = (
    "SimCLR and AMCL see no labels, and have the stronger views of their recipes. The views of "
    "other systems keep most of the colour, which is a label here. The papers' views do not "
    "differ."
)

WEIGHTS_NOTE = (
    "Learned weights are normalised, of mean 1. The claims are judged on them. A row of learned "
    "weights as printed has the papers' form, without normalisation. No claim is judged on it."
)

Watch = Callable[[str], AbstractContextManager[Callbacks]]


def run(
    experiment: Experiment,
    setting: Setting,
    watch: Watch,
    on_phase: Callable[[str], None] = lambda what: None,
) -> Done:
    """Trains the missing cells, and writes the experiment's files.

    The files are table.csv, table.md, a PNG per picture and, with verdicts, claims.csv. All are in
    the folder with the experiment's name. Raises the errors of `run_comparison`.
    """
    trained = train(experiment.name, setting, unique(experiment.cells(setting)), watch, on_phase)
    outcome, folder = experiment.finish(setting, trained), setting.folder / experiment.name
    notes = [*outcome.notes, *stand_in_notes(trained), *disclosures(trained)]
    notes += gauge_notes(trained.values())
    outcome = replace(outcome, notes=notes)
    write(folder, experiment, outcome)
    return Done(experiment, outcome, trained, folder)


def first_trained(trained: Iterable[Trained], data: str) -> Trained | None:
    """Returns the first finished training on a data set, the baselines aside, None without one."""
    found = (t for t in trained if t.cell.data == data and t.cell.key not in BASELINES)
    return next((t for t in found if t.finished), None)


def disclosures(trained: Mapping[Cell, Trained]) -> list[str]:
    """Returns a note on images, items, network, views and classes per data set with trainings."""
    notes, far = [], []
    for name in dict.fromkeys(cell.data for cell in trained):
        some, data_set = first_trained(trained.values(), name), DATA_SETS[name]
        if some is None or some.source is None:
            continue
        items, network, labels = disclosed(some.source, data_set, some)
        notes.append(
            f"{data_set.title}: {some.source.title}, {items}. {some.cell.title}: {network} in a "
            f"training. Labels and their classes: {labels}."
        )
        far += labels_with_other_classes(some, data_set)
    if any(cell.key == "mtcon" for cell in trained):
        notes.append(WEIGHTS_NOTE)
    found = [(cell, each.source) for cell, each in trained.items() if each.source]
    if any(source.choice == "photos" and cell.is_self_supervised for cell, source in found):
        notes.append(VIEWS_NOTE)
    if far:
        notes.append(CLASSES_NOTE.format(labels=", ".join(far)))
    return notes


def gauge_notes(trained: Iterable[Trained]) -> list[str]:
    """Returns the warnings about systems whose own gauges show that they learned nothing."""
    return [
        f"{each.cell.title} on {DATA_SETS[each.cell.data].title}: {text}."
        for each in trained
        for text in gauges(each.row)
    ]


def labels_with_other_classes(some: Trained, data_set: DataSet) -> list[str]:
    """Returns the labels of stand-in images with twice or half of the paper's classes, or beyond.

    The numbers of classes are read from the training `some`.
    """
    plan, source = some.row.results and some.row.results.plan, some.source
    if not plan or source is None or not source.is_stand_in:
        return []
    found = []
    for label, papers in data_set.classes.items():
        ours = plan.classes.get(source.columns[label], papers)
        if max(ours, papers) >= 2 * min(ours, papers):
            found.append(
                f"{source.name_label(label)} of {data_set.title} ({ours}, the paper's {papers})"
            )
    return found


def disclosed(source: Source, data_set: DataSet, some: Trained | None) -> tuple[str, str, str]:
    """Returns items, network and labels of the trainings on a data set, read from `some`."""
    results = some.row.results if some else None
    plan = results.plan if results else None
    classes = plan.classes if plan else {}
    labels = []
    for label in data_set.labels:
        count, papers = classes.get(source.columns[label]), data_set.classes.get(label)
        ours = "" if count is None else f": {count}"
        theirs = f", the paper's {papers}" if ours and papers and source.is_stand_in else ""
        labels.append(f"{source.name_label(label)}{ours}{theirs}")
    if results is None or plan is None:
        return "", "", "; ".join(labels)
    spec = results.spec
    encoder, views = spec.model.encoder, plan.images_per_trial * spec.views.num_views
    start = getattr(encoder, "weights", None) or "random"
    items = ", ".join(f"{count:,} {split}" for split, count in plan.num_items.items())
    return items, f"{encoder.name}, {start} start, {views:,} views", "; ".join(labels)


def stand_in_notes(trained: Mapping[Cell, Trained]) -> list[str]:
    """Returns a note with the names of stand-in images, and the columns of labels."""
    sources = {cell.data: each.source for cell, each in trained.items()}
    names = [
        f"{source.title} for {DATA_SETS[data].title}, with the columns "
        + ", ".join(f"{source.columns[label]} for {label}" for label in DATA_SETS[data].labels)
        for data, source in sources.items()
        if source is not None and source.is_stand_in
    ]
    return [STAND_INS.format(names="; ".join(names))] if names else []


def comparison_of(
    name: str, setting: Setting, cells: Sequence[Cell]
) -> tuple[Comparison, dict[Cell, Row]]:
    """Returns the sweeps of all cells, and a row with a reason for each cell without images."""
    specs: dict[str, RunSpec] = {}
    tuning: dict[str, Tuning] = {}
    missing: dict[Cell, Row] = {}
    for cell in cells:
        try:
            title, tuned = setting.name_of(cell), setting.tuning_of(cell)
            specs[title] = setting.spec_of(cell)
            tuning |= {title: tuned} if tuned else {}
        except MissingImagesError as error:
            missing[cell] = Row(cell.slug, None, str(error))
    return Comparison(f"{setting.name}-{name}".replace("_", "-"), specs, tuning=tuning), missing


def plan_lines(experiment: Experiment, setting: Setting, cluster: ClusterView) -> list[str]:
    """Returns an experiment's sweeps, and the detectable difference of each of its claims."""
    cells = unique(experiment.cells(setting))
    comparison, missing = comparison_of(experiment.name, setting, cells)
    stages = list(plan_stages(comparison, setting.root, cluster))
    lines = stage_lines(stages) if stages else []
    lines += [f"{row.title}: {row.why}" for row in missing.values()]
    if not stages:
        return lines
    if not setting.budget.judges:
        few = f"{setting.budget.seeds} of at least {MIN_SEEDS} seeds"
        return [*lines, f"no claim is judged with {few}"]
    num_items = min(plan.num_items["test"] for _, name, plan in stages if name == "seeds")
    return [*lines, *power_lines(experiment, setting, missing, num_items)]


def train(
    name: str,
    setting: Setting,
    cells: Sequence[Cell],
    watch: Watch,
    on_phase: Callable[[str], None] = lambda what: None,
) -> dict[Cell, Trained]:
    """Returns the results of all cells, reusing the trainings of other experiments.

    A cell with missing images or failed trainings has a row with the reason.
    """
    comparison, missing = comparison_of(name, setting, cells)
    rows: list[Row] = []
    if comparison.specs:
        # Imports Ray and MLflow, which takes seconds.
        from mtcon_ray.comparison.run import run_comparison

        rows, _ = run_comparison(comparison, root=setting.root, watch=watch, on_phase=on_phase)
    row_of = {row.title: row for row in rows}
    return {
        cell: Trained(cell, None, missing[cell])
        if cell in missing
        else Trained(cell, setting.source(cell.data), row_of[setting.name_of(cell)])
        for cell in cells
    }
