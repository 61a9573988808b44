"""The `method` section: fields common to several methods, and the table of all methods."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field

from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import NamedSpec, Table
from mtcon_ray.errors import nearest
from mtcon_ray.spec.problem import Problem

METHODS: Table[Any] = Table("method")


class MethodSpec(NamedSpec):
    """Fields common to the sections of all methods. Each method adds further fields.

    If `trains` is False, the method has no steps. Its only epoch is for the probes.
    `images_per_example` is the number of images of a training example: 3 for triplets. If
    `uses_labels` is False, the method can be trained without tasks. `own_heads` matches the names
    of heads that belong to no task.
    """

    trains: ClassVar[bool] = True
    uses_labels: ClassVar[bool] = True
    images_per_example: ClassVar[int] = 1
    own_heads: ClassVar[str] = ""

    def check(self, problem: Problem) -> None:
        """Raises ValueError if the method cannot be trained on this problem.

        Called before labels are read, so `problem.sizes` may be empty.
        """
        if not problem.tasks and self.uses_labels:
            free = [name for name in METHODS if not METHODS.spec(name).uses_labels]
            raise ValueError(
                f"data.tasks must name a label for method {self.name}, got none; methods that need "
                f"no labels are {', '.join(free)}"
            )
        check_heads(problem, self.own_heads)

    def warnings(self) -> dict[str, str]:
        """Returns warnings of allowed but risky values, by field name. `plan` shows them."""
        return {}

    @property
    def has_batch_norm(self) -> bool:
        """True if the heads of the method have batch norm."""
        return False

    def num_examples(self, num_items: int) -> int:
        """Returns the number of training examples per epoch for `num_items` training items."""
        return num_items

    def rows_per_example(self, num_views: int) -> int:
        """Returns the rows of an example in a step: views of its item, or one view per image."""
        return num_views if self.images_per_example == 1 else self.images_per_example


# Below 1e-6 a quotient of a similarity in float32 has an error of more than 0.1.
Temperature = Annotated[float, Field(ge=1e-6, le=100)]


class SeveralViewsSpec(MethodSpec):
    """Base of the sections of all methods that compare views of an item."""

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.num_views < 2:
            raise ValueError(
                f"views.num_views must be at least 2 to compare views, got {problem.num_views}"
            )


class ContrastiveSpec(SeveralViewsSpec):
    """Fields common to the contrastive methods."""

    temperature: Temperature = Field(0.1, description="divides every similarity")


def check_heads(problem: Problem, own_heads: str) -> None:
    """Raises ValueError for a task with the name of a head that belongs to no task.

    Metrics and columns of embeddings have the name of a head where its task is meant.
    """
    if taken := [task for task in problem.tasks if re.fullmatch(own_heads, task)]:
        raise ValueError(
            f"data.tasks must not name a head of the method, got {taken[0]!r}; rename the column"
        )


def check_task(task: str | None, problem: Problem, kind: Kind = "classes") -> None:
    """Raises ValueError if no task is of the kind, or if the spec's `task` is not of the kind."""
    columns = problem.of_kind(kind)
    what = "a label set" if kind == "set" else "a column of classes"
    if not columns:
        raise ValueError(f"data.tasks must have {what}, got {dict(problem.kinds)}")
    if task is not None and task not in columns:
        raise ValueError(
            f"task must be {what} in data.tasks {list(columns)}, got "
            f"{task!r}{nearest(task, columns)}"
        )


def one_epoch_if_untrained(raw: Any) -> Any:
    """Returns a spec's plain data, with epochs set to 1 if its method does not train.

    The probes are fitted in this epoch. Epochs in the data are replaced, because the base of a
    comparison may give them.
    """
    method = raw.get("method") if isinstance(raw, dict) else None
    name = method.get("name") if isinstance(method, dict) else getattr(method, "name", method)
    if not isinstance(name, str) or name not in METHODS or METHODS.spec(name).trains:
        return raw
    one = {"train": {"epochs": 1, "warmup_epochs": 0}, "evaluate": {"every": 1}}
    given = {section: raw.get(section, {}) for section in one}
    return raw | {k: {**v, **one[k]} for k, v in given.items() if isinstance(v, dict)}
