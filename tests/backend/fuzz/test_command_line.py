"""Config files with arbitrary content: the command runs, or exits with code 2 and one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.cli.main import run
from tests.helpers.formats.damage import damaged
from tests.helpers.fuzzing import tried

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
ARGUMENTS = {"runs": (), "evaluate": ("nobody", "--dataset", "none.txt"), "report": (), "doctor": ("--port", "0")}
NAMES = st.sampled_from(
    ["data", "database", "json", "as_json", "config", "tokens", "k", "text", "runs", "device", "port"]
)
JSON = b'{"json": true, "tokens": [1, {"a": null}], "device": "cpu"}'
TOML = b'json = true\ntokens = "5M"\n[table]\nname = [1, 2.5, "three"]\ndate = 2026-11-21T10:00:00Z\n'


def check(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command and check that its error message is one line."""
    code = run(words)
    said = capsys.readouterr().err
    assert code in (0, 1, 2)
    if code == 2:
        assert said.startswith("mxd: ")
        assert said.count("\n") == 1


@pytest.mark.parametrize("command", ARGUMENTS)
def test_arbitrary_values(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "settings.json"

    @tried(12)
    @given(values=st.dictionaries(NAMES | st.text(max_size=8), VALUES, max_size=3) | VALUES)
    def use(values: object) -> None:
        path.write_text(json.dumps(values))
        check([command, *ARGUMENTS[command], "--config", str(path)], capsys)

    use()


@pytest.mark.parametrize(("name", "sound"), [("a.toml", TOML), ("a.json", JSON)])
def test_damaged_files(
    name: str, sound: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name

    @tried(20)
    @given(content=damaged(sound) | st.binary(max_size=60))
    def use(content: bytes) -> None:
        path.write_bytes(content)
        check(["runs", "--config", str(path)], capsys)

    use()


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 100_000, '{"a": ' + "9" * 10_000 + "}"])
@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_deep_and_huge_files(name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(content if name.endswith("json") else f"a = {content}")
    assert run(["runs", "--config", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert "Cannot read the config file" in said
    assert len(said) < 1000
