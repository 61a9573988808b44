"""Commands to write and check a spec: init, examples, prepare, validate, plan, schema."""

import json
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from mtcon_ray.base.paths import cache_folder
from mtcon_ray.base.registry import expanded
from mtcon_ray.base.safe_yaml import dump_yaml, parse_yaml
from mtcon_ray.cli import options
from mtcon_ray.cli.example_files import SYNTHETIC, copy_examples, example_file
from mtcon_ray.cli.infer_columns import infer_columns, infer_folders
from mtcon_ray.cli.spec_template import Draft, write_new
from mtcon_ray.data.dataset import CheckedData, open_dataset
from mtcon_ray.data.image_names import ROW_ENDINGS
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.download import DownloadSource
from mtcon_ray.display.console import say, warn
from mtcon_ray.display.plan_text import counted, data_lines, plan_lines
from mtcon_ray.display.presentation import hanging
from mtcon_ray.errors import DataError, SpecError, nearest
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import exchange_times, make_plan
from mtcon_ray.spec.data.own import ARCHIVES
from mtcon_ray.spec.recipes import RECIPES
from mtcon_ray.spec.run_spec import RunSpec, load_spec, parse_spec, set_value
from mtcon_ray.sweep.preparation import check_data


@click.command()
@click.argument("csv", required=False, type=options.PATH)
@click.argument("images", required=False, type=options.PATH)
@click.option("--synthetic", is_flag=True, help="Write the spec of `demo`, which needs no files.")
@click.option("-o", "--output", type=options.PATH, help="The spec's file.  [default: NAME.yaml]")
def init(csv: Path | None, images: Path | None, synthetic: bool, output: Path | None) -> None:
    """Write a commented spec for a CSV and its IMAGES.

    IMAGES is a folder or a tar. Without a CSV, its folders are the classes.
    Nothing is written if `validate` would refuse the spec.
    """
    if synthetic == bool(csv):
        raise click.UsageError("give CSV and IMAGES, IMAGES alone, or --synthetic without files")
    found = _draft(csv, images) if csv else None
    text = found.spec_text() if found else example_file(SYNTHETIC).read_text(encoding="utf-8")
    spec = parse_spec(parse_yaml(text, "spec"))
    _, lines, _ = _checked(spec)
    path = output or Path(f"{spec.name}.yaml")
    write_new(path, text)
    quoted = shlex.quote(str(path))
    commands = [f"  mtcon-ray {command} {quoted}" for command in ("validate", "plan", "sweep")]
    options.session().say("\n".join([f"wrote {path}", *lines, "next:", *commands]))


def _draft(csv: Path, images: Path | None) -> Draft:
    """Returns the spec for a CSV and its images, or for class folders."""
    if images or csv.suffix.lower() in ROW_ENDINGS:  # a Parquet file alone is refused there
        return infer_columns(csv, images or csv.parent)
    if csv.is_dir() or csv.name.endswith(ARCHIVES):
        return infer_folders(csv)
    raise click.UsageError(
        f"give the images too: mtcon-ray init {csv} IMAGES; a folder or tar of images may "
        "stand alone, its folders are the classes; --synthetic needs no files"
    )


@click.command()
@click.argument("folder", type=options.PATH)
def examples(folder: Path) -> None:
    """Copy the documents, example specs, scripts and cluster files.

    The documents begin with FOLDER/docs/index.md.
    """
    options.session().say("\n  ".join(["wrote", *map(str, copy_examples(folder))]))


@click.command()
@click.argument("kind")
@click.option(
    "--root", "download", required=True, type=options.PATH,
    help="The folder into which the data set's archives were unpacked.",
)  # fmt: skip
@options.overrides
def prepare(kind: str, download: Path, overrides: tuple[str, ...]) -> None:
    """Check a published data set, decode it, print a spec.

    KIND is a kind of data, such as zappos50k. The spec has the recipe of the data set's paper and
    is all that is written to standard output. Decoded images are cached in its storage.root.
    Decoding continues where it was interrupted.
    """
    raw, run_spec = _recipe_spec(kind, download, overrides)
    root = options.root_of(None, run_spec.storage)
    for line in _prepared(run_spec, root):
        options.session().say(hanging(line), err=True)
    say(raw.rstrip())


@click.command()
@options.spec_file
@options.overrides
def validate(spec: Path, overrides: tuple[str, ...]) -> None:
    """Check a spec, its labels and its images; start nothing."""
    plan, lines, _ = _checked(load_spec(spec, overrides))
    size = f"{counted(plan.num_trials, 'trial')} of {plan.count_text('epochs')} epochs"
    options.session().say("\n".join([f"{spec} is valid: {size}", *lines]))


def _checked(spec: RunSpec) -> tuple[Plan, list[str], CheckedData]:
    """Returns the plan of a spec on a cluster of unlimited size, and its data, also as lines.

    Prints the plan's warnings. Raises UserError.
    """
    anywhere = ClusterView("any cluster", (NodeKind("any node", 1e9, 1e9, None),))
    root = options.root_of(None, spec.storage)
    found = check_data(spec, root)
    plan = make_plan(spec, root, anywhere, found.table, count_parameters=False)
    for warning in plan.warnings:
        warn(warning)
    rows = data_lines(spec.data, plan)
    return plan, [hanging(f"  {label:<10}{text}") for label, text in rows], found


@click.command()
@options.spec_file
@options.overrides
@options.root
@options.as_json
@click.option(
    "--cluster", metavar="WHERE",
    help="A Ray cluster YAML, or `local`.  [default: RAY_ADDRESS, else local]",
)  # fmt: skip
@click.option(
    "--calibrate", is_flag=True, help="Train 20 steps and evaluate once here to estimate hours."
)
@click.option("--bandwidth", type=float, metavar="GB_PER_S", help="Time the workers' exchange.")
def plan(
    spec: Path,
    overrides: tuple[str, ...],
    root: str | None,
    as_json: bool,
    cluster: str | None,
    calibrate: bool,
    bandwidth: float | None,
) -> None:
    """Show a sweep's trials, data, resources; start nothing."""
    from mtcon_ray.sweep.prior import plan_sweep

    run_spec = load_spec(spec, overrides)
    if bandwidth is not None and not bandwidth > 0:  # also NaN
        raise click.UsageError(f"--bandwidth must be above 0, got {bandwidth:g}")
    where = options.root_of(root, run_spec.storage)
    measure = None
    if calibrate:
        from mtcon_ray.plan.throughput import measure_rates

        measure = partial(measure_rates, run_spec, where)
    resolved = plan_sweep(run_spec, where, options.cluster_view(cluster), measure)
    if bandwidth and not resolved.exchange:
        raise SpecError("--bandwidth: the workers of this spec exchange nothing; leave it out")
    if bandwidth:
        resolved.exchange.update(exchange_times(run_spec, resolved, bandwidth))
    lines = hanging("\n".join(plan_lines(run_spec, resolved)))
    say(resolved.model_dump_json(indent=1) if as_json else lines)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    say(json.dumps(RunSpec.model_json_schema(), indent=1))


def _recipe_spec(kind: str, root: Path, overrides: tuple[str, ...]) -> tuple[str, RunSpec]:
    """Returns the spec of a published data set with its paper's recipe, as YAML and parsed.

    Raises SpecError for a kind without a recipe, or an invalid override.
    """
    if kind not in RECIPES:
        raise SpecError(f"KIND must be a published data set, got {kind!r}{nearest(kind, RECIPES)}")
    data = {"kind": kind, "root": str(expanded(root).absolute())}
    raw: dict[str, Any] = {"version": 1, "name": kind, "data": data}
    for path, value in RECIPES[kind].items():
        set_value(raw, path, value)
    spec = parse_spec(raw, overrides)
    # Written out, because a user is likely to change them.
    raw["data"] |= {"tasks": list(spec.data.tasks), "held_out": list(spec.data.held_out)}
    return dump_yaml(raw), spec


def _prepared(spec: RunSpec, root: Path) -> Iterator[str]:
    """Checks the data of a spec and decodes its images. Yields lines on each.

    The cache of decoded images lies below `root`. Standard error shows the progress unless quiet.
    Raises DataError if a part is missing or unusable.
    """
    store, source = cache_folder(root), SOURCES[spec.data.kind](spec.data)
    assert isinstance(source, DownloadSource)
    if missing := source.missing():
        lines = "".join(f"\n  {line}" for line in missing)
        raise DataError(f"the data set in {source.spec.root} is not complete; missing:{lines}")
    _, about, found = _checked(spec)
    yield from (f"warning: {line}" for line in source.differences())
    yield from [f"{spec.data.kind} in {source.spec.root}", *about]
    with options.display(sys.stderr) as bar:
        bar.on_phase("reading the images' files")
        dataset = open_dataset(
            spec.data, view_size=spec.views.size, store=store, callbacks=bar, checked=found
        )
    known = found.table.warnings
    yield from (f"warning: {line}" for line in dataset.table.warnings if line not in known)
    side, size = dataset.images.shape[1], decimal(dataset.images.nbytes)
    decoded = f"{len(dataset.table):,} of {side} x {side} pixels are decoded"
    yield f"  {'images':<10}{decoded}, {size} in {store}"
