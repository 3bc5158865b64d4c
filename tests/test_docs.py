"""The documents and their site agree with the code: paths, commands, flags, settings, pages."""

import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import mxd
from benchmarks.commands.bench import BENCHMARKS
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import command_from, full_parser, parse
from mxd.backend.cli.registry import COMMANDS
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = (README, ROOT / "CONTRIBUTING.md", ROOT / "data" / "README.md")
GENERATED = ROOT / "docs" / "reference" / "command-line.md"
ARCHIVE = ROOT / "docs" / "results" / "archive"
"""Names commands of earlier versions, as the change log does."""
PAGES = (*DOCUMENTS, *sorted(set((ROOT / "docs").rglob("*.md")) - {GENERATED, *ARCHIVE.glob("*.md")}))
COMMAND = re.compile(r"\s*(?:\$ )?(?:\.venv/bin/)?(?:torchrun .*-m mxd|mxd) (?P<words>.+)$")
BENCHMARK = re.compile(r"\s*(?:\.venv/bin/)?python -m benchmarks (?P<words>[a-z].*)$")
OTHER_FLAGS = {
    "--nproc-per-node",
    "--nnodes",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--logdir",
    "--build-arg",
    "--kills",
    "--no-deps",
    "--depth",
    "--saedashboard-output-dir",
    "--model-name",
    "--layer-num",
    "--neuronpedia-source-set-id",
    "--hook-point",
    "--output",
    "--buffer",
}
"""Flags of other programs in the documents."""
OTHER_VARIABLES = {"MXD_POSTGRESQL", "MXD_CACHE", "MXD_ENDPOINT_KEY", "MXD_TOKEN"}


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def indented(document: Path) -> list[str]:
    return re.findall(r"(?:^ {4}\S.*\n)+", document.read_text("utf-8"), flags=re.MULTILINE)


def commands(document: Path, pattern: re.Pattern[str] = COMMAND) -> Iterator[list[str]]:
    """Arguments of each command line in a code block of a document."""
    for block in [*blocks(document), *indented(document)]:
        for line in block.replace("\\\n", " ").splitlines():
            command = pattern.match(line)
            if command and not line.rstrip().endswith("…"):
                yield shlex.split(command["words"], comments=True)


def flags_below(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from flags_below(inner)


@cache
def known_flags() -> set[str]:
    """Flags of all commands, and of the benchmarks, which are generated from class fields."""
    benchmarks = {f"--{name.replace('_', '-')}" for each in BENCHMARKS.values() for name in each.model_fields}
    return {*flags_below(full_parser()), *benchmarks, *OTHER_FLAGS, "--completion"}


def test_paths_in_documents_exist() -> None:
    pattern = re.compile(r"`((?:trainer|backend|benchmarks|scripts|tests|frontend/src|docs|data)/[\w./-]*)`")
    for document in (*DOCUMENTS[:2], ROOT / "docs" / "storage.md"):
        paths = set(pattern.findall(document.read_text("utf-8")))
        assert sorted(path for path in paths if not (ROOT / path).exists()) == [], document


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_commands_flags_and_settings_of_a_page_exist(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(document):
        file_name = re.match(r"# (\S+\.toml)\n", block)
        if file_name:
            (tmp_path / file_name[1]).write_text(block)
    for words in commands(document):
        if words[0] == "--completion":
            assert run(words[:2]) == 0
            continue
        try:
            command = command_from(words)
            if isinstance(command, TrainCommand) and not command.resume:
                command.configs(tmp_path)
        except UserError as error:
            pytest.fail(f"mxd {shlex.join(words)}: {error}")
    for name, *words in commands(document, BENCHMARK):
        parse(BENCHMARKS[name], words, name)
    text = document.read_text("utf-8")
    known = {name.partition(" ")[0] for name in COMMANDS}
    assert set(re.findall(r"`mxd ([a-z][a-z-]*)", text)) - known == set()
    flags = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*[a-z])", text))
    assert sorted(flags - known_flags()) == []
    settings = {f"MXD_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    assert sorted(set(re.findall(r"\bMXD_[A-Z_]+\b", text)) - settings) == []


@pytest.mark.parametrize(("script", "nodes"), [("train", 1), ("train-nodes", 3)])
def test_the_job_scripts_train(script: str, nodes: int, tmp_path: Path) -> None:
    stubs = {
        "scontrol": "for node in a b c; do echo $node; sleep 0.1; done",  # one write each, as for many nodes
        "srun": 'exec "$@"',
        "torchrun": f'printf "%s\\n" "$@" > {tmp_path}/words',
    }
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "[a-c]", "SLURM_NNODES": "3", "SLURM_GPUS_ON_NODE": "8"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", ROOT / "docs" / "slurm" / f"{script}.sbatch"], check=True, env=os.environ | job | path)
    words = (tmp_path / "words").read_text().splitlines()
    torchrun = " ".join(words[: words.index("-m")])
    meeting = " --rdzv-id 7 --rdzv-backend c10d --rdzv-endpoint a:29500"
    assert torchrun == ("--nproc-per-node 8" if nodes == 1 else f"--nnodes {nodes} --nproc-per-node 8{meeting}")
    command = command_from(words[words.index("mxd") + 1 :])
    assert isinstance(command, TrainCommand)
    assert command.resume


FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=\"(https?:[^\"]+)\"|<link[^>]*stylesheet[^>]*href=\"(https?:[^\"]+)\""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with --strict."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_has_every_page_and_the_references_and_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(str(page) for page in pages if not (site / page).is_file()) == []
    navigation = (site / "index.html").read_text("utf-8")
    assert sorted(str(page) for page in pages if f'href="{page}"' not in navigation and page.name != "index.html") == []
    commands = (site / "reference" / "command-line.html").read_text("utf-8")
    assert sorted(name for name in COMMANDS if f"mxd {name}" not in commands) == []
    python = (site / "reference" / "python.html").read_text("utf-8")
    for name in set(mxd.__all__) - {"UserError", "__version__"}:
        assert re.search(rf'id="mxd\.api\.[\w.]+\.{name}"', python), name
    assert "--learning-rate" in commands and "Peak learning rate of AdamW" in python
    loaded = {str(page): FETCHED.findall(page.read_text("utf-8")) for page in site.rglob("*.html")}
    assert {page: addresses for page, addresses in loaded.items() if addresses} == {}
