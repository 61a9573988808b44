"""Base class of all spec sections, and registries of sections selected by name in a spec.

Each kind of a section (a method, an encoder, a kind of data) has a class of its own. A field of the
spec selects a kind and is annotated with `Choice(TABLE)`. pydantic turns it into a
discriminated union over the table's content when the schema is built.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, cast, get_args, get_origin

import pydantic
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, create_model
from pydantic_core import CoreSchema, core_schema

from mtcon_ray.errors import SpecError, UserError, nearest


class Spec(BaseModel):
    """Base of all spec sections, which are immutable and closed: an unknown key is an error.

    A number may not be given as true or false.
    """

    # Not `use_attribute_docstrings`: pydantic would search the source of each class when it is
    # defined. This took a third of the time of `mtcon-ray validate` without the import of torch.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yields name, kind, and the fields that differ from their defaults, for `repr`."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(str(name))  # None for a plugin's unknown field
            if name in ("name", "kind") or field is None or value != field.default:
                yield name, value

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _without_booleans(cls, given: Any, validate: Callable[[Any], Self]) -> Self:
        section = validate(given)
        if isinstance(given, dict):
            for name, field in cls.model_fields.items():
                was_boolean = _may_have_boolean(given.get(field.alias or name))
                if was_boolean and not _may_have_boolean(getattr(section, name)):
                    raise ValueError(f"{name} must be a number, got true or false")
        return section


class NamedSpec(Spec):
    """Base of the sections of several kinds with the field `name`, which selects the kind."""

    name: str = ""


def _may_have_boolean(value: Any) -> bool:
    """Returns True for a boolean, for sections, which check themselves, and for lists of both."""
    if isinstance(value, list | tuple | dict):
        return any(map(_may_have_boolean, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool | BaseModel)


# Types of fields with bounds.
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
UpTo64 = Annotated[int, Field(ge=1, le=64)]
Width = Annotated[int, Field(ge=2, le=65536)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Inside = Annotated[float, Field(gt=0, lt=1)]
Weight = Annotated[float, Field(ge=0, le=1000)]


class PathMark:
    """Annotation of the fields with paths. See `fields_with`."""


# Also matches the path of a URL after `Path` has merged its two slashes.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# The form of a URL by its scheme.
STORES = {"s3://": "s3://bucket/name", "gs://": "gs://bucket/name"}
# Allows only the bucket's name before the first slash, so no login. Allows no query, because it
# may be a signature.
_URL = re.compile(r"(?:s3|gs)://[A-Za-z0-9][\w.-]*/[^?#\\\x00-\x1f]*")


def expanded(path: str | Path) -> Path:
    """Returns the path with ~ or ~user replaced. Raises UserError for an unknown home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(
            f"the home folder in {str(path)!r} is unknown on this machine; start the path at /"
        ) from None


def beside_the_spec(value: str, info: ValidationInfo) -> str:
    """Returns a path. A relative path in a spec file starts at the file's folder."""
    if URL.match(value):
        # Shows only the scheme, because a login may follow it.
        scheme = value.partition("/")[0]
        raise ValueError(f"must be a path of this machine, got a URL that begins with {scheme}/")
    folder = (info.context or {}).get("folder")
    try:
        return str(Path(folder or "") / expanded(value))
    except UserError as error:
        raise ValueError(str(error)) from None


def checked_url(value: str) -> str:
    """Returns the URL of a place in an object store. Raises ValueError for anything else."""
    form = next((form for scheme, form in STORES.items() if value.startswith(scheme)), None)
    if form is None:
        raise ValueError(f"must begin with {', '.join(STORES)}, got {value.partition('/')[0]}/")
    if not _URL.fullmatch(value) or {"..", "."} & set(value.split("/")):
        raise ValueError(
            f"must read {form}, without a login, a query or '..', because specs are logged; keys "
            "come from the environment or the machine's role"
        )
    return value


def _path_or_url(value: str, info: ValidationInfo) -> str:
    return checked_url(value) if URL.match(value) else beside_the_spec(value, info)


def is_word(value: str) -> bool:
    """Returns True if a text has no path separator and no file extension."""
    return "/" not in value and "\\" not in value and not Path(value).suffix


# A path. In a spec file, a relative path starts at the file's folder.
LocalPath = Annotated[Text, pydantic.AfterValidator(beside_the_spec), PathMark]
# A `LocalPath`, or a URL of an object store.
PathOrUrl = Annotated[Text, pydantic.AfterValidator(_path_or_url), PathMark]

# Sections by the class that they declare, in this package its place "module:Class".
_SECTIONS: dict[type | str, type[Spec]] = {}


class Configured:
    """Base of the classes chosen by a section of a spec. The section is the attribute `Spec`.

    A class of this package gets the section that names it. A plugin's class nests its own.
    """

    Spec: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if section := _SECTIONS.get(f"{cls.__module__}:{cls.__name__}"):
            cls.Spec = section


T = TypeVar("T")
S = TypeVar("S", bound=type[Spec])


class Table(Generic[T]):
    """Registry of sections of a spec by name, and of the classes which they configure.

    `table.declare` registers a section of this package with the place of its class, which
    `table["name"]` imports. So a spec is validated without torch. `table.register` registers a
    plugin's class with its nested `Spec`. An unknown name raises SpecError with the nearest name.
    Iteration yields the sorted names. `what` names the kind of class in messages. `key` is the
    field with the name, which a section gets if it has none of its own.
    """

    def __init__(self, what: str, key: str = "name") -> None:
        self.what = what
        self.key = key
        self._specs: dict[str, Any] = {}
        self._classes: dict[str, type[T] | str] = {}

    def declare(self, name: str, cls: type[T] | str = "") -> Callable[[S], S]:
        """Returns a decorator of the section for a class or its place "module:Class", if any.

        The name must be unused.
        """

        def add(section: S) -> S:
            assert name not in self._specs, f"{name!r} is taken by {self._classes[name]} and {cls}"
            if self.key not in section.__annotations__:
                fields: Any = {self.key: (Literal[name], name)}
                base, doc = section, section.__doc__
                section = cast(S, create_model(base.__name__, __base__=base, __doc__=doc, **fields))
                section.__module__, section.__qualname__ = base.__module__, base.__qualname__
            self._specs[name] = _SECTIONS[cls] = section
            self._classes[name] = cls
            return section

        return add

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Returns a decorator of a class with a nested `Spec`."""

        def add(cls: type[T]) -> type[T]:
            cls.Spec = self.declare(name, cls)(cls.Spec)  # type: ignore[attr-defined]
            return cls

        return add

    def spec(self, name: str) -> Any:
        """Returns the section of this name, a class. Imports nothing."""
        if name not in self._specs:
            raise SpecError(f"unknown {self.what} {name!r}{nearest(name, self._specs)}")
        return self._specs[name]

    def __getitem__(self, name: str) -> type[T]:
        self.spec(name)
        found = self._classes[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self._classes[name] = cast(type[T], getattr(import_module(module), attribute))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._specs))


class Choice:
    """Annotation of a spec field with one of a table's `Spec`s as section.

    A section without the key means `default`, if a default exists. A bare string stands for the
    section with this name and defaults for all other fields. A recorded spec (`recorded` in the
    validation's context) may have a kind that only a plugin knows: its common fields are read.
    """

    def __init__(self, table: Table[Any], default: str | None = None) -> None:
        self.table = table
        self.key = table.key
        self.default = default

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: pydantic.GetCoreSchemaHandler
    ) -> CoreSchema:
        # Runs when the spec's class is defined, and again by `rebuild`.
        choices = {name: handler.generate_schema(self.table.spec(name)) for name in self.table}
        choices = choices or {"": handler(source)}  # pydantic refuses a union without members
        union = core_schema.tagged_union_schema(choices, discriminator=self.key)

        def validate(value: Any, union: Any, info: ValidationInfo) -> Any:
            if isinstance(value, str):
                value = {self.key: value}
            if isinstance(value, dict) and self.default is not None:
                value = {self.key: self.default, **value}
            is_recorded = (info.context or {}).get("recorded") and isinstance(value, dict)
            # Only the kinds of a common base class may come from plugins.
            is_open = is_recorded and isinstance(source, type)
            if is_open and value.get(self.key) not in [None, *self.table]:

                class Unknown(source, extra="allow"):  # type: ignore[misc, call-arg]
                    """The fields common to all kinds, and any others."""

                return Unknown.model_validate(value)
            return union(value)

        return core_schema.with_info_wrap_validator_function(validate, union)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        sections = handler(schema)
        return {"anyOf": [sections, {"type": "string", "enum": list(self.table)}]}


@cache
def choice_fields(section: type[Spec]) -> Mapping[tuple[int | str, ...], Choice]:
    """Returns the `Choice` of each section with several kinds, by the keys of its path."""
    found = ((path, part) for path, parts in _fields(section) for part in parts)
    return {tuple(path.split(".")): part for path, part in found if isinstance(part, Choice)}


def field_paths(section: type[Spec]) -> list[str]:
    """Returns the dotted paths of all fields and sections, of every kind of each section, once."""
    return list(dict.fromkeys(path for path, _ in _fields(section)))


@cache
def fields_with(section: type[Spec], mark: type[Any]) -> frozenset[str]:
    """Returns the dotted paths of all fields with a type or an annotation, of every kind.

    `PathMark` marks paths, `dict` mappings with keys chosen by the user.
    """
    return frozenset(path for path, parts in _fields(section) if mark in parts)


def rebuild(*sections: type[Spec]) -> None:
    """Rebuilds sections, inner sections first, after kinds were added to their tables."""
    for section in sections:
        section.model_rebuild(force=True)
    for cached in (choice_fields, fields_with):
        cached.cache_clear()


def _fields(section: type[Spec], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yields each field's path, and the types and annotations in its type."""
    for name, field in section.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        parts = [*_parts(field.annotation), *field.metadata]
        yield path, parts
        tables = [part.table for part in parts if isinstance(part, Choice)]
        kinds = [table.spec(kind) for table in tables for kind in table]
        specs = [part for part in parts if isinstance(part, type) and issubclass(part, Spec)]
        for each in kinds or specs:
            yield from _fields(each, f"{path}.")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yields a type without its parameters, and the same of its parameters and annotations."""
    yield get_origin(annotation) or annotation
    for part in get_args(annotation):
        yield from _parts(part)
