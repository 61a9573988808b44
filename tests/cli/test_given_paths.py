"""Paths at the command line that cannot be used: an unknown home folder, names not in UTF-8."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mtcon_ray.cli.infer_columns import infer_columns
from mtcon_ray.cli.infer_folders import infer_folders
from mtcon_ray.cli.infer_hf import infer_hf
from mtcon_ray.cli.main import program
from mtcon_ray.errors import DataError

ELSEWHERE = "~no-such-user/x"


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--root", ELSEWHERE],
        ["init", ELSEWHERE, "images"],
        ["init", "labels.csv", ELSEWHERE],
        ["init", f"{ELSEWHERE}.tar"],
        ["prepare", "ucmerced", "--root", ELSEWHERE],
    ],
    ids=" ".join,
)
def test_the_home_of_an_unknown_user_is_told(words: list[str]) -> None:
    told = CliRunner().invoke(program, words)
    assert told.exit_code == 2, told.output
    assert f"the home folder at the beginning of '{ELSEWHERE}" in told.stderr


BAD, GOOD = Path(os.fsdecode(b"lab\xff")), Path("images")


@pytest.mark.parametrize(
    ("infer", "paths"),
    [
        (infer_columns, (BAD, GOOD)),
        (infer_columns, (GOOD, BAD)),
        (infer_folders, (BAD,)),
        (infer_hf, (BAD,)),
    ],
    ids=["csv", "images", "folders", "hf"],
)
def test_a_path_that_is_not_utf8_is_refused(
    infer: Callable[..., object], paths: tuple[Path, ...]
) -> None:
    """A spec, which is a text in UTF-8, could not name it."""
    with pytest.raises(DataError, match=r"must be a text in UTF-8, got .*lab.*; rename that"):
        infer(*paths)


@pytest.mark.parametrize("command", [["list"], ["validate", "/x.yaml"]])
def test_a_working_directory_that_is_gone_is_told_before_anything_else(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = CliRunner().invoke(program, command)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the working directory was removed or moved")
