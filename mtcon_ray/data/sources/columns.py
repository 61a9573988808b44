"""Base of the kinds of data with labels in the columns of a table, a row per image."""

from abc import abstractmethod

import numpy as np

from mtcon_ray.data import splits
from mtcon_ray.data.class_names import doubtful_names
from mtcon_ray.data.column import Column
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import FilesSource
from mtcon_ray.data.table_file import TableFile, encode_classes, read_bits, read_lists, read_numbers
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import SPLIT_COLUMN, ColumnsSpec


class ColumnsSource(FilesSource):
    """Base class of the kinds of data with a table of labels. An empty cell is a missing label."""

    spec: ColumnsSpec

    @property
    @abstractmethod
    def table(self) -> TableFile:
        """The table of labels, a row per item."""

    def read_labels(self) -> LabelTable:
        table, spec = self.table, self.spec
        labels, classes, warnings = {}, {}, [*table.warnings]
        for column in (*spec.tasks, *spec.held_out):
            if spec.kind_of(column) == "classes":
                codes, names = encode_classes(table.column(column))
                labels[column], classes[column] = codes, names
                warnings += doubtful_names(column, names, codes, table.rows)
        multi_hot, multi_hot_names = {}, {}
        for name, columns in spec.multi_hot.items():
            if isinstance(columns, str):
                bits, bit_names = read_lists(table, columns, spec.multi_hot_separator)
                rows, codes = np.nonzero(bits == 1)
                warnings += doubtful_names(columns, bit_names, codes, table.rows[rows])
            else:
                bits, bit_names = read_bits(table, columns), columns
            multi_hot[name], multi_hot_names[name] = bits, bit_names
        split, origin = self.read_split()
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=split,
            split_origin=origin,
            multi_hot=multi_hot,
            multi_hot_names=multi_hot_names,
            continuous={c: read_numbers(table, c) for c in spec.continuous},
            warnings=(*warnings, *self.doubts(split)),
        )

    def read_split(self) -> tuple[np.ndarray, str]:
        """Returns each item's split, int8 [N], and the origin of the splits in words."""
        spec, table, column = self.spec, self.table, self.spec.split_column
        if column is not None and (column != SPLIT_COLUMN or column in table.columns):
            self.refuse_strata(f"column {column!r} of {table.path}")
            return splits.named_split(table, column), f"column {column!r}"
        words = f"drawn at random from seed {spec.seed}"
        if spec.group_column is not None:
            words += f", whole groups of {spec.group_column!r}"
        if spec.stratify:
            words += f", the same shares in each class of {', '.join(spec.stratify)}"
        return self.draw(np.arange(len(table.rows)), spec.split_fractions), words

    def refuse_strata(self, given: str) -> None:
        """Raises DataError if `stratify` is set although the splits come from `given`."""
        if self.spec.stratify:
            raise DataError(
                f"data.stratify must go with a random split, got {given}; set data.split_column: "
                "null, or leave data.stratify out"
            )

    def draw(self, rows: np.ndarray, fractions: tuple[float, ...]) -> np.ndarray:
        """Returns a random split of some rows, int8 [rows], by group_column and stratify."""
        spec, table, groups = self.spec, self.table, self.groups[rows]
        if not spec.stratify:
            return splits.drawn_split(groups, fractions, spec.seed)
        columns = [table.column(name).cells[rows] for name in spec.stratify]
        strata = np.array(["\0".join(cells) for cells in zip(*columns, strict=True)], dtype=object)
        return splits.stratified_split(splits.common(strata, groups), groups, fractions, spec.seed)

    @property
    def groups(self) -> np.ndarray:
        names = np.array(self.names, dtype=object)
        if self.spec.group_column is None:
            return names
        named = self.table.column(self.spec.group_column).cells
        # Prefixes distinguish an item without a group from a group with the item's name.
        return np.where(named == "", "image:" + names, "group:" + named)

    def doubts(self, split: np.ndarray) -> list[str]:
        """Returns warnings of images listed twice, and of images or groups in several splits."""
        names, group, found = Column.of(self.names), self.spec.group_column, []
        fault = "are in more than one split: accuracies will be too high"
        if repeats := len(names) - len(names.texts):
            found.append(f"{repeats} rows of {self.table.path} repeat the image of another row")
        columns = {"images": names}
        if group is not None:
            columns[f"groups of {group!r}"] = self.table.column(group)
        for what, values in columns.items():
            if count := splits.num_straddling(values, split):
                found.append(f"{count} {what} {fault}")
        return found
