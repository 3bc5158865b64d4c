"""What the documents say is so: files, commands, flags, settings, endpoints, verbs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.app import create_app
from backend.cli import main
from backend.settings import Settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = (README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "data" / "README.md")
TREE_LINE = re.compile(r"^(?P<indent> *)(?P<name>\S+)(?: {2,}\S.*)?$")


def blocks(document: Path) -> list[str]:
    """Contents of the fenced blocks of a document."""
    return re.findall(r"^```\w*\n(.*?)^```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def tree() -> list[Path]:
    """The paths in the README's file tree: two spaces deeper for each folder, the description after the name."""
    block = next(block for block in blocks(README) if re.search(r"^trainer/ ", block, flags=re.MULTILINE))
    folders: list[str] = []
    paths = []
    for line in block.splitlines():
        match = TREE_LINE.match(line)
        assert match is not None, f"not a line of a file tree: {line}"
        depth = len(match["indent"]) // 2
        folders[depth:] = [match["name"].rstrip("/")]
        paths.append(Path(*folders))
    return paths


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each mxd command line in the fenced blocks of the README: its command and its words."""
    for block in blocks(README):
        for line in block.replace("\\\n", " ").splitlines():
            if line.removeprefix("$ ").removeprefix(".venv/bin/").startswith("mxd "):
                _, command, *words = shlex.split(line.removeprefix("$ "), comments=True)
                yield command, words


def help_text(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``mxd COMMAND --help`` prints."""
    monkeypatch.setattr(sys, "argv", ["mxd", command, "--help"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (0, None), f"mxd has no command {command}"
    return capsys.readouterr().out


def test_file_tree_names_what_exists() -> None:
    assert [str(path) for path in tree() if not (ROOT / path).exists()] == []


def test_file_tree_names_every_module() -> None:
    modules = {
        path.relative_to(ROOT)
        for package in ("trainer", "backend")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    listed = set(tree())
    # A folder without lines of its own stands for all that is in it.
    whole = {path for path in listed if not any(path in other.parents for other in listed)}
    assert sorted(str(path) for path in modules - listed if whole.isdisjoint(path.parents)) == []


def test_commands_and_flags_exist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen = list(commands())
    assert seen
    for command, words in seen:
        text = help_text(command, monkeypatch, capsys)
        flags = {word.split("=")[0] for word in words if word.startswith("--")}
        assert [flag for flag in flags if not re.search(rf"{flag}\b", text)] == [], f"mxd {command}"


def test_settings_are_documented_and_nothing_else_is() -> None:
    said = set(re.findall(r"\bMXD_[A-Z_]+\b", "".join(document.read_text("utf-8") for document in DOCUMENTS)))
    settings = {f"MXD_{name.upper()}" for name in Settings.model_fields}
    assert sorted(settings - said) == []
    assert sorted(said - settings) == []


def test_endpoints_exist(tmp_path: Path) -> None:
    paths = create_app(Settings(data=tmp_path)).openapi()["paths"]
    patterns = [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths]
    said = set(re.findall(r"(/api/[\w/{}-]+)", README.read_text("utf-8")))
    assert sorted(path for path in said if not any(pattern.fullmatch(path) for pattern in patterns)) == []


def test_every_verb_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert phony is not None
    said = (ROOT / "CONTRIBUTING.md").read_text("utf-8") + README.read_text("utf-8")
    verbs = set(phony[1].split()) - {"help"}
    assert sorted(verb for verb in verbs if f"make {verb}" not in said) == []
    assert sorted(set(re.findall(r"`make (\w+)", said)) - verbs) == []
