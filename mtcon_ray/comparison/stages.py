"""The stages of a comparison: the plans of all its sweeps, and their text."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.comparison.claims import ITEM_DEVIATION, MIN_SEEDS, SEED_DEVIATION, planned
from mtcon_ray.comparison.comparison_spec import ClaimSpec, Comparison
from mtcon_ray.display.plan_text import counted, rungs_text, work_of
from mtcon_ray.display.tables import Table
from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import make_plan
from mtcon_ray.sweep.preparation import check_data
from mtcon_ray.sweep.prior import earlier_trials, first_configurations

# A system's title, its sweep ("tune", "again" or "seeds", the final one), and the sweep's plan.
Stage = tuple[str, str, Plan]


def plan_stages(comparison: Comparison, root: Path, cluster: ClusterView) -> Iterator[Stage]:
    """Yields the plan of every sweep, in the order of training.

    Raises CheckpointError, DataError, ResourceError or SpecError if a sweep could never run.
    """
    for title, final in comparison.specs.items():
        tuning = comparison.tuning.get(title)
        specs = {"tune": tuning.first, "again": tuning.again} if tuning else {}
        table = check_data(final, root).table
        for name, spec in {**specs, "seeds": final}.items():
            if spec is not None:
                folder = sweep_folder(root, spec.name)
                first_configurations(spec, earlier_trials(spec, root, folder))
                yield title, name, make_plan(spec, root, cluster, table, count_parameters=False)


def stage_lines(stages: Sequence[Stage]) -> list[str]:
    """Returns a comparison's sweeps as a table, with sums, "at most" if they are not known."""
    rows = []
    for title, name, plan in stages:
        what = f"{plan.num_configurations:,} x {plan.count_text('epochs')} epochs"
        what += f", {plan.repeats:,} seeds" if plan.repeats > 1 else ""
        if plan.rung_epochs:
            what += f", {plan.scheduler}{rungs_text(plan)}"
        rows.append([title, name, *work_of([plan]), what])
    rows.append(["all", "", *work_of([plan for _, _, plan in stages]), ""])
    header = ["system", "sweep", "trials", "epochs", "configurations"]
    return Table(header, rows, right=(2, 3)).lines()


def power_lines(claims: Sequence[ClaimSpec], stages: Iterable[Stage]) -> list[str]:
    """Returns lines on the differences that the claims will probably detect, [] without claims."""
    titles = {title for claim in claims for title in (claim.better, claim.than)}
    used = [plan for title, name, plan in stages if name == "seeds" and title in titles]
    if not used:
        return []
    # One training is enough where every seed has the same result: without training.
    needed = [plan.repeats for plan in used if plan.images_per_trial or plan.repeats > 1]
    seeds = min(needed, default=MIN_SEEDS)
    items = min(plan.num_items.get("test", 0) for plan in used)
    of = f"{counted(len(claims), 'claim')}, {counted(seeds, 'seed')}, {items:,} test items"
    if seeds < MIN_SEEDS or not items:
        return [f"no claim will be decided: {of}; at least {MIN_SEEDS} seeds are needed"]
    pairs = {frozenset((claim.better, claim.than)) for claim in claims}
    found = 100 * planned(items, seeds, len(used), len(pairs), len(claims))
    return [
        f"claims will probably detect a difference of {found:.1f} points of accuracy ({of}; 80 % "
        f"power after Holm's correction, with a deviation of {100 * ITEM_DEVIATION:g} points over "
        f"test items and of {100 * SEED_DEVIATION:g} over seeds)"
    ]
