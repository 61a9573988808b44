"""Generator of docs/spec.md and docs/commands.md.

Run it by `python docs/reference.py`.
"""

import json
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from mtcon_ray.cli.main import COMMANDS, command_named, program
from mtcon_ray.spec.run_spec import RunSpec

DOCS = Path(__file__).parent

SCHEMA: dict[str, Any] = RunSpec.model_json_schema()
BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "maxProperties": "at most {}",
    "pattern": "`{}`",
}
SPEC_HEAD = """# Every field of a spec

This page is made from the code, by `python docs/reference.py`; `mtcon-ray schema` prints the same
for editors. **Required** fields have no default. A field in `search.space` is named by its path,
such as `method.temperature`. Where a section is one of several kinds, the name of a kind stands for
the section with its defaults: `encoder: vit` is `encoder: {name: vit}`. On a published data set
`views.size`, `model.encoder` and `train.batch_size` are [those of its
paper](data.md#published-data-sets) by default.
"""
COMMANDS_HEAD = """# Every command

This page is made from the code, by `python docs/reference.py`. `-h` prints the same.

Exit codes: **0** done (a sweep has a winner) · **1** no winner, or a failure that is not due to
your input · **2** wrong input; the message names a solution · **130** interrupted, and resumable.
`-v` (traces) and `-q` (results only) go before or after the name of any command. With
`NO_COLOR` set nothing is coloured. `eval "$(_MTCON_RAY_COMPLETE=bash_source mtcon-ray)"` in
`~/.bashrc` completes commands and options. zsh has
`zsh_source`, fish has `fish_source`.
"""


def spec_page() -> str:
    """Returns the reference of the spec as Markdown."""
    parts = [SPEC_HEAD, "## The whole\n", *fields(SCHEMA)]
    for name, field in SCHEMA["properties"].items():
        parts += section(name, resolved(field))
    return "\n".join(parts).rstrip() + "\n"


def commands_page() -> str:
    """Returns the reference of the commands as Markdown."""
    parts = [COMMANDS_HEAD]
    for name in COMMANDS:
        command = command_named(name)
        context = click.Context(command, info_name=name, parent=click.Context(program))
        usage = " ".join(["mtcon-ray", name, *command.collect_usage_pieces(context)])
        parts += [f"## {name}\n", f"{cleandoc(str(command.help))}\n", f"```text\n{usage}\n```\n"]
        rows = [p.get_help_record(context) for p in command.params if isinstance(p, click.Option)]
        shown = [row for row in rows if row and not row[0].startswith(("-v,", "-q,"))]
        if shown:
            parts += ["| option | |", "| --- | --- |"]
            parts += [f"| `{cell(flag)}` | {cell(text)} |" for flag, text in shown]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def section(path: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yields a section's heading and table, then the tables of its kinds or of its subsections."""
    kinds = schema.get("oneOf")
    if kinds:
        yield f"## `{path}`\n"
        yield f"One of {', '.join(f'`{constant(resolved(kind))[1]}`' for kind in kinds)}.\n"
        for kind in map(resolved, kinds):
            key, value = constant(kind)
            yield f"### `{path}` with `{key}: {value}`\n"
            yield f"{text_of(kind)}\n"
            yield from fields(kind)
    elif "properties" in schema:
        yield f"## `{path}`\n"
        yield f"{text_of(schema)}\n"
        yield from fields(schema)
        for name, field in schema["properties"].items():
            yield from section(f"{path}.{name}", resolved(field))


def fields(schema: dict[str, Any]) -> Iterator[str]:
    """Yields the table of a section's fields."""
    required = schema.get("required", [])
    yield "| field | type | default | |"
    yield "| --- | --- | --- | --- |"
    for name, field in schema["properties"].items():
        inner = resolved(field)
        more = "section below" if "oneOf" in inner or "properties" in inner else kind_of(field)
        default = "**required**" if name in required else default_of(field)
        yield f"| `{name}` | {cell(more)} | {default} | {cell(text_of(field))} |"
    yield ""


def kind_of(schema: dict[str, Any]) -> str:
    """Returns a field's type and bounds in words."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(kind_of, schema["anyOf"])))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(v).strip(chr(34))}`" for v in schema["enum"])
    name = {"null": "null", "object": "mapping", "array": "list"}.get(
        schema.get("type", ""), schema.get("type", "any value")
    )
    if isinstance(schema.get("items"), dict):
        name += f" of {kind_of(schema['items'])}"
    elif "prefixItems" in schema:  # a list of fixed length
        name += f" of {' or '.join(dict.fromkeys(map(kind_of, schema['prefixItems'])))}"
    if isinstance(schema.get("additionalProperties"), dict):
        name += f" to {kind_of(schema['additionalProperties'])}"
    if "properties" in schema:
        kinds = [key for key in schema["properties"] if key != "step"]
        name = "one of " + ", ".join(f"`{{{key}: ...}}`" for key in kinds)
    return ", ".join([name, *bounds_of(schema)])


def bounds_of(schema: dict[str, Any]) -> list[str]:
    """Returns a field's bounds in words."""
    bounds = {key: text.format(schema[key]) for key, text in BOUNDS.items() if key in schema}
    if "minItems" in bounds and schema["minItems"] == schema.get("maxItems"):
        bounds["minItems"] = f"exactly {schema['minItems']}"
        del bounds["maxItems"]
    return list(bounds.values())


def default_of(field: dict[str, Any]) -> str:
    """Returns a field's default as JSON, which is also YAML, or a dash for a section."""
    if "default" not in field or "properties" in resolved(field) or "oneOf" in resolved(field):
        return "—"
    return f"`{json.dumps(field['default'], ensure_ascii=False)}`"


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema behind a reference or a section's short form, or the schema itself."""
    first = schema.get("anyOf", [{}])[0]
    if "" in first.get("discriminator", {}).get("mapping", {}):  # no kind without a plugin
        return {"type": "name or section of a plugin"}
    if "oneOf" in first:
        sections: dict[str, Any] = first
        return sections
    if "$ref" in schema:
        found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def constant(schema: dict[str, Any]) -> tuple[str, str]:
    """Returns the name and value of the field for distinguishing the kinds of a section."""
    return next((n, f["const"]) for n, f in schema["properties"].items() if "const" in f)


def text_of(schema: dict[str, Any]) -> str:
    """Returns a schema's description on one line."""
    return " ".join(schema.get("description", "").split())


def cell(text: str) -> str:
    """Returns text with `|` escaped for a table cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (DOCS / "spec.md").write_text(spec_page(), encoding="utf-8")
    (DOCS / "commands.md").write_text(commands_page(), encoding="utf-8")
