"""Tests of what is derived from the types of a spec's fields."""

from typing import Annotated, Literal

import pytest
from pydantic import ValidationError

from mtcon_ray.base.registry import (
    Choice,
    LocalPath,
    PathOrUrl,
    Spec,
    Table,
    open_fields,
    path_fields,
)
from mtcon_ray.errors import UserError
from mtcon_ray.spec.resources import StorageSpec

KINDS: Table[object] = Table("kind")


class FileSpec(Spec):
    """The section of a registered kind with a path."""

    kind: Literal["file"] = "file"
    file: LocalPath
    shares: dict[str, float]


class PlainSpec(Spec):
    """The section of a registered kind without paths."""

    kind: Literal["plain"] = "plain"
    text: str = ""


@KINDS.register("file")
class File:
    """A registered kind."""

    Spec = FileSpec


@KINDS.register("plain")
class Plain:
    """Another registered kind."""

    Spec = PlainSpec


class Inner(Spec):
    """A nested section."""

    place: PathOrUrl | None = None


class Outer(Spec):
    """A whole spec."""

    data: Annotated[Spec, Choice(KINDS, "kind")] | None = None
    inner: Inner = Inner()
    by_name: dict[str, int] | None = None


def test_paths_are_found_by_type_in_every_registered_kind() -> None:
    assert path_fields(Outer) == {"data.file", "inner.place"}


def test_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(UserError, match="the beginning of '~no-such-user/x' is unknown on this"):
        Inner.model_validate({"place": "~no-such-user/x"})


@pytest.mark.parametrize("url", ["s3://me:key@bucket/x", "file:///x", "https://host/x"])
def test_a_local_path_is_no_url(url: str) -> None:
    """It would become a folder named `s3:` below that of the spec."""
    told = rf"got a URL that begins with {url.partition(':')[0]}:/"
    with pytest.raises(ValidationError, match=rf"must be a path of this machine, {told}"):
        FileSpec.model_validate({"file": url, "shares": {}})
    with pytest.raises(ValidationError, match=r"must (begin with|read) s3://"):
        StorageSpec.model_validate({"root": url})
    assert FileSpec.model_validate({"file": "a/s3://x", "shares": {}}).file == "a/s3:/x"


def test_mappings_with_free_keys_are_found_by_type() -> None:
    assert open_fields(Outer) == {"data.shares", "by_name"}
