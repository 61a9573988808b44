"""Picture of a table: a panel per label, with each method's printed value and ours."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from mtcon_ray.display import plotting

# Columns whose values name a panel. The other columns describe a method.
PLACE = ["data", "label", "held out", "metric"]
# The method of a row without a counterpart in the paper.
LACKING = "—"
PAPER: dict[str, Any] = {
    "linestyle": "", "marker": "D", "color": plotting.ORANGE, "markerfacecolor": "white",
}  # fmt: skip
OURS: dict[str, Any] = {"linestyle": "", "marker": "o", "color": plotting.BLUE}
# Name in the legend and look of each column of values.
LOOKS = {
    "paper": ("the paper, ± as printed", PAPER), "ours": ("ours, ± bootstrap deviation", OURS)
}  # fmt: skip


def draw_table(table: pd.DataFrame) -> bytes:
    """Draws a panel for each label and metric of a table made by `tables`, and returns a PNG.

    A row of a panel is a method. A diamond is the paper's value, a dot is ours.
    """
    groups = list(table.groupby(PLACE, sort=False))
    most = max(len(group) for _, group in groups)
    across = 2 if len(groups) in (2, 4) else min(3, len(groups))
    with plotting.styled():
        height = 1.1 + 0.23 * most
        figure, grid = plotting.panels(len(groups), height=height, columns=across)
        before: list[str] = []
        for i, ((place, group), axes) in enumerate(zip(groups, grid, strict=True)):
            _draw_panel(axes, place, group)
            names = row_names(group)
            axes.set_yticks(range(len(group)), [plotting.shortened(name, 36) for name in names])
            # Panels in a line have the same methods if they have the same data.
            axes.tick_params(labelleft=i % across == 0 or names != before)
            before = names
        columns = [name for name in LOOKS if table[name].notna().any()]
        plotting.legend(figure, {LOOKS[name][0]: LOOKS[name][1] for name in columns})
        return plotting.png(figure)


def _draw_panel(axes: Axes, place: Any, group: pd.DataFrame) -> None:
    data, label, held_out, metric = place
    first = f"{data}, held out" if held_out == "yes" else data
    # A label and its column of other images need a line each, or titles of panels would overlap.
    axes.set_title(f"{first}\n{label}".replace(" (", "\n("), loc="left", fontsize=10)
    axes.set_xlabel(f"{metric} (%)")
    for column, look, offset in (("paper", PAPER, 0.14), ("ours", OURS, -0.14)):
        deviation = "± paper" if column == "paper" else "± items"
        for y, (_, row) in enumerate(group.iterrows()):
            if pd.notna(row[column]):
                bar = None if pd.isna(row[deviation]) else row[deviation]
                axes.errorbar(row[column], y + offset, xerr=bar, capsize=2, **look)
    axes.set_ylim(len(group) - 0.5, -0.5)


def row_names(group: pd.DataFrame) -> list[str]:
    """Returns a name for each row of a label: the paper's, with our variant if there are several.

    Systems without a counterpart in the paper have our name.
    """
    several = group.groupby("method")["ours is"].transform("nunique") > 1
    rows = zip(group["method"], group["ours is"], several, strict=True)
    return [
        ours
        if method == LACKING
        else f"{method}, {ours.partition(', ')[2]}"  # "learned weights" of "MTCon, learned weights"
        if is_one_of_several
        else method
        for method, ours, is_one_of_several in rows
    ]
