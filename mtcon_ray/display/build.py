"""Builder of a sweep's report: a self-contained HTML page."""

from base64 import b64encode
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from mtcon_ray.base import paths
from mtcon_ray.base.root_files import make_folder
from mtcon_ray.data.disk import whole_file
from mtcon_ray.display import page
from mtcon_ray.display import presentation as show
from mtcon_ray.display.figures import epochs_figure, parameters_figure
from mtcon_ray.display.results_table import leaderboard
from mtcon_ray.records.results import SweepResults


class Drawn(NamedTuple):
    """A figure of the page: title, caption, and PNG bytes."""

    title: str
    caption: str
    png: bytes

    @property
    def uri(self) -> str:
        """Returns the figure as a data URI."""
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


def build_report(results: SweepResults, *, ui_command: str | None) -> Path:
    """Writes <sweep>/report/index.html, which contains its figures. Returns its path.

    Replaces an earlier report. `ui_command` is the command line to open the tracking UI.
    """
    target = paths.report_page(results.folder)
    make_folder(target.parent)
    html = render(results, list(draw(results)), ui_command)
    with whole_file(target) as file:
        # A failure reason may quote a file name with invalid UTF-8.
        file.write(html.encode(errors="replace"))
    return target


def draw(results: SweepResults) -> Iterator[Drawn]:
    """Yields the figures with data, in the order of the page."""
    labels = results.labels
    bars = "Bars: ± one bootstrap deviation. " if labels.tasks else ""
    probed = [t for t in results.trials if t.probe_values]
    if results.spec.search.space and any(t.value is not None for t in probed):
        yield Drawn(
            f"{labels.objective} against the searched fields",
            f"The value of each trial's network. {bars}"
            "Hollow points had less than their full budget and cannot win.",
            parameters_figure(results),
        )
    if probed:
        yield Drawn(
            f"{labels.objective} while training",
            "Of every trial by epoch, the winner on top.",
            epochs_figure(results),
        )


def render(results: SweepResults, figures: list[Drawn], ui_command: str | None) -> str:
    """Returns the page as HTML."""
    template = files(__package__).joinpath("page.html").read_text("utf-8")
    return fill(
        template,
        page=page,
        show=show,
        results=results,
        labels=results.labels,
        figures=figures,
        leaderboard=leaderboard(results),
        accuracies=page.accuracies(results),
        commands=show.commands(results, results.folder / paths.SPEC_FILE),
        ui_command=ui_command,
    )


def fill(template: str, **values: Any) -> str:
    """Returns a page from a Jinja template. Its variable `style` is the style of all pages.

    Values are escaped, except for values called safe by the template. Raises UndefinedError for a
    name of the template without a value.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = files(__package__).joinpath("page.css").read_text("utf-8")
    return environment.from_string(template).render(style=style, **values)
