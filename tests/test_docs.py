"""What the documents say is so: files, commands, flags, settings, endpoints, verbs."""

from __future__ import annotations

import re
import shlex
import subprocess
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from backend.app import create_app
from backend.commands.catalogue import COMMANDS
from backend.commands.parsing import command_from, parser_of_everything
from backend.commands.train import TrainCommand
from backend.settings import Settings
from trainer.errors import UserError

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = (README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "data" / "README.md")
PAGES = (*DOCUMENTS, *sorted((ROOT / "docs").rglob("*.md")))
COMMAND = re.compile(r"\s*(?:\$ )?(?:\.venv/bin/)?(?:torchrun .*-m backend\.cli|mxd) (?P<words>.+)$")
OTHER_FLAGS = {
    "--nproc-per-node",
    "--nnodes",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--logdir",
    "--build-arg",
    "--kills",
    "--epochs",
    "--from",
    "--held-out",
    "--tokenizer",
    "--vocabulary",
}
"""Of the other programs that the documents name."""
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


def indented(document: Path) -> list[str]:
    """Contents of the blocks of a document that are set apart by four spaces."""
    return re.findall(r"(?:^ {4}\S.*\n)+", document.read_text("utf-8"), flags=re.MULTILINE)


def commands(document: Path) -> Iterator[list[str]]:
    """The words behind ``mxd`` of each command line that is set apart in a document."""
    for block in [*blocks(document), *indented(document)]:
        for line in block.replace("\\\n", " ").splitlines():
            found = COMMAND.match(line)
            if found and not line.rstrip().endswith("…"):
                yield shlex.split(found["words"], comments=True)


def flags_below(parser: ArgumentParser) -> Iterator[str]:
    """Every flag of a parser and of the commands below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from flags_below(inner)


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


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_the_parser_takes_every_command_line(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(document):
        named = re.match(r"# (\S+\.toml)\n", block)
        if named:
            (tmp_path / named[1]).write_text(block)
    for words in commands(document):
        try:
            command_from(words)
        except (SettingsError, ValidationError, UserError) as error:
            pytest.fail(f"mxd {shlex.join(words)}: {error}")


def test_command_lines_are_found() -> None:
    assert len(list(commands(README))) > 8
    assert ["store", "compact"] in list(commands(ROOT / "docs" / "storage.md"))
    with pytest.raises(SettingsError, match="--widht"):
        command_from(["train", "--widht", "3"])


def test_the_job_script_is_bash_and_its_fit_is_one() -> None:
    path = ROOT / "docs" / "slurm" / "fit.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    found = re.search(r"-m backend\.cli (.*?) &$", path.read_text("utf-8").replace("\\\n", " "), flags=re.MULTILINE)
    assert found is not None
    fit = command_from(shlex.split(found[1]))
    assert isinstance(fit, TrainCommand)
    assert fit.resume


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_commands_and_flags_that_are_spoken_of_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    parser = parser_of_everything()
    known = set(COMMANDS)
    assert set(re.findall(r"`mxd ([a-z][a-z-]*)", text)) - known == set()
    flags = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*[a-z])", text))
    assert sorted(flags - set(flags_below(parser)) - OTHER_FLAGS) == []


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
