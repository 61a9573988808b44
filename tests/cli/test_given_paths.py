"""Paths at the command line that cannot be used: an unknown home folder, names not in UTF-8."""

from pathlib import Path

import pytest

from tests.cli.conftest import run

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
    told = run(*words)
    assert told.exit_code == 2, told.output
    assert f"the home folder at the beginning of '{ELSEWHERE}" in told.stderr


@pytest.mark.parametrize("command", [["list"], ["validate", "/x.yaml"]])
def test_a_working_directory_that_is_gone_is_told_before_anything_else(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = run(*command)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the working directory was removed or moved")
