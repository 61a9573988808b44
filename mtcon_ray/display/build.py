"""Builder of a sweep's report: a self-contained HTML page with its figures."""

import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, StrictUndefined
from PIL import Image

from mtcon_ray.base import paths
from mtcon_ray.base.root_files import make_folder
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.disk import whole_file
from mtcon_ray.data.sources.files import evenly
from mtcon_ray.data.views import example_views
from mtcon_ray.display import by_class, page, plotting, presentation as show
from mtcon_ray.display.coordinates import coordinates
from mtcon_ray.display.plan_text import setup
from mtcon_ray.display.plotting import STANDINGS
from mtcon_ray.display.ranking import deviation
from mtcon_ray.display.results_table import leaderboard
from mtcon_ray.export.search import Neighbour
from mtcon_ray.records.results import SweepResults, objective_values
from mtcon_ray.spec.run_spec import with_values

EXAMPLES = 6  # images with views
GAP = (math.nan, math.nan)  # between two trials of a line


def build_report(results: SweepResults, *, ui_command: str, with_views: bool = False) -> Path:
    """Writes <sweep>/report/index.html, which contains its figures. Returns its path.

    Replaces an earlier report. `ui_command` is the command line to open the tracking UI. With
    `with_views` the page shows images of the data, which it otherwise never does.
    """
    target = results.folder / paths.REPORT_PAGE
    make_folder(target.parent)
    html = fill(
        files(__package__).joinpath("page.html").read_text("utf-8"),
        page=page,
        show=show,
        setup=setup,
        results=results,
        figures=[*draw(results), *(draw_views(results) if with_views else ())],
        leaderboard=leaderboard(results),
        by_class=list(by_class.parts(results)),
        coordinates=coordinates(results),
        ui_command=ui_command,
    )
    with whole_file(target) as file:
        # A failure reason may quote a file name with invalid UTF-8.
        file.write(html.encode(errors="replace"))
    return target


def draw(results: SweepResults) -> Iterator[tuple[str, str, str]]:
    """Yields title, caption and data URI of each figure with data, in the order of the page."""
    labels = results.labels
    known = any(math.isfinite(deviation(trial, labels)) for trial in results.trials)
    bars = "Bars: ± one bootstrap deviation. " if known else ""
    probed = any(trial.probe_values for trial in results.trials)
    if probed and results.spec.search.space:
        yield (
            f"{labels.objective} against the searched fields",
            f"The value of each trial's network. {bars}"
            "Hollow points had less than their full budget and cannot win.",
            _data_uri("png", parameters_figure(results)),
        )
    if probed:
        yield (
            f"{labels.objective} while training",
            "Of every trial by epoch, the winner on top.",
            _data_uri("png", epochs_figure(results)),
        )


def draw_views(results: SweepResults) -> Iterator[tuple[str, str, str]]:
    """Yields title, caption and data URI of the views of some images of the train split.

    Decodes the images unless they are cached.
    """
    params = results.winner.params if results.winner else {}
    spec, store = with_values(results.spec, params), paths.cache_folder(results.folder.parents[1])
    dataset = open_dataset(spec.data, view_size=spec.views.size, store=store)
    rows = dataset.table.rows("train")
    some = torch.from_numpy(dataset.images[rows[evenly(len(rows), EXAMPLES)]])
    yield (
        "Views",
        "A row per image of the train split: as it is evaluated, then its random views in a step.",
        _picture(example_views(some, spec.views, spec.seed)),
    )


def fill(template: str, **values: Any) -> str:
    """Returns a page from a Jinja template, with the style and the script of all pages.

    The page names the digest of the script, so a browser runs no other.

    Values are escaped, except for values called safe by the template. Raises UndefinedError for a
    name of the template without a value.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    here = files(__package__)
    style, script = (here.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    digest = f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    made = environment.from_string(template)
    return made.render(style=style, script=script, digest=digest, **values)


def neighbours_page(
    queries: Sequence[str],
    query_images: Sequence[np.ndarray],
    found: Sequence[Sequence[Neighbour]],
    images: np.ndarray,
) -> str:
    """Returns a page of each query and its nearest images, with their similarity and path.

    Each image is uint8 [S, S, 3]. `images` are the found ones, query after query.
    """
    uris = map(_picture, images)
    shown = [
        {
            "name": show.printable(name),
            "image": _picture(image),
            "found": [{**each._asdict(), "image": next(uris)} for each in group],
        }
        for name, image, group in zip(queries, query_images, found, strict=True)
    ]
    return fill(files(__package__).joinpath("neighbours.html").read_text("utf-8"), queries=shown)


def _picture(image: np.ndarray) -> str:
    """Returns an image, uint8 [S, S, 3], as a data URI."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=85)
    return _data_uri("jpeg", buffer.getvalue())


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"


def epochs_figure(results: SweepResults) -> bytes:
    """Draws the objective of every trial by epoch, the winner on top. Returns a PNG."""
    with plotting.styled():
        figure, (axes,) = plotting.panels(1, height=3.9)
        # A line per standing with gaps between its trials: matplotlib takes 2 ms for each line.
        curves: dict[str, list[tuple[float, float]]] = {kind: [] for kind in STANDINGS}
        for trial in results.trials:
            values = objective_values(trial.reports).items()
            finite = (pair for pair in values if math.isfinite(pair[1]))
            curves[plotting.standing(trial, results.winner)] += [*finite, GAP]
        looks = {kind: look for kind, look in STANDINGS.items() if curves[kind]}
        for kind, look in looks.items():
            drawn = {"marker": ".", "linewidth": 2.4 if kind == plotting.WINNER else 1.3}
            axes.plot(*zip(*curves[kind], strict=True), **look | drawn)
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{results.labels.objective} (fraction)")
        plotting.count_axis(axes)
        plotting.legend(figure, looks)
        return plotting.png(figure)


def parameters_figure(results: SweepResults) -> bytes:
    """Draws the trials' values against each searched field, at least one. Returns a PNG."""
    labels, space = results.labels, results.spec.search.space
    trials = [t for t in results.trials if t.value is not None and math.isfinite(t.value)]
    winner = results.winner
    by_standing = {k: [t for t in trials if plotting.standing(t, winner) == k] for k in STANDINGS}
    with plotting.styled():
        figure, grid = plotting.panels(len(space), height=2.75)
        for axes, path in zip(grid, space, strict=True):
            axes.set_ylabel(f"{labels.objective} (fraction)")
            axes.margins(x=0.07)
            values = [t.params[path] for t in trials]
            scale = plotting.axis_scale(values)
            names = list(dict.fromkeys(map(show.value_text, values)))  # of a categorical axis
            shown_path = plotting.shortened(path, 40)
            axes.set_xlabel(f"{shown_path}, log scale" if scale == "log" else shown_path)
            for kind, shown in by_standing.items():
                xs = [t.params[path] for t in shown]
                if scale == "categorical":
                    xs = [names.index(show.value_text(x)) for x in xs]
                stds = [deviation(t, labels) for t in shown]
                ys = np.array([t.value for t in shown], dtype=float)
                axes.errorbar(xs, ys, stds, linestyle="", **STANDINGS[kind])
            if scale == "categorical":
                axes.set_xticks(range(len(names)), [plotting.shortened(n, 18) for n in names])
            elif scale == "log":
                plotting.log_axis(axes)
            elif all(value == round(value) for value in values):
                plotting.count_axis(axes)
        plotting.legend(figure, {k: STANDINGS[k] for k, shown in by_standing.items() if shown})
        return plotting.png(figure)
