"""The whole product on a device, within a minute: train, index, evaluate, route, steer, circuit, serve."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from benchmarks.gpu.sections import Point, Setting

DEMO = Path(__file__).resolve().parents[2] / "tests" / "demo"
"""Folder with a small language model and text."""
PROMPT = "The other day she said that"
LAYERS = (1, 2)
TINY_EVALUATION = "--prompts 1 --jacobian-tokens 2 --resamples 100"


def smoke_points(setting: Setting) -> Iterator[Point]:
    """Yield the seconds of each command; the first that fails ends the section with its message."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        for words in _commands(setting.tiny):
            started = time.perf_counter()
            _run([*words, "--data", name, "--device", setting.device])
            yield {"command": words[0], "seconds": time.perf_counter() - started}
        started = time.perf_counter()
        yield {"command": "serve", "routed": _served(data, setting.device), "seconds": time.perf_counter() - started}


def _commands(tiny: bool) -> Iterator[list[str]]:
    runs = [f"smoke-{layer}" for layer in LAYERS]
    dataset = ["--dataset", str(DEMO / "text.jsonl.gz"), "--on-short-text", "repeat", "--tokens"]
    train, index, evaluate = ("4096", "1024", "256") if tiny else ("16384", "4096", "1024")
    for run, layer in zip(runs, LAYERS, strict=True):
        sizes = ["--layer", str(layer), "--num-experts", "256", "--k", "8", "--name", run]
        yield ["train", str(DEMO / "language-model"), *sizes, *dataset, train]
        yield ["index", run, *dataset, index]
    yield ["evaluate", runs[0], *dataset, evaluate, "--seen-text", *(TINY_EVALUATION.split() if tiny else ())]
    yield ["route", runs[0], PROMPT]
    yield ["steer", runs[0], PROMPT, "--edit", "3:add:4", "--max-tokens", "8"]
    yield ["circuit", *runs, "--prompt", PROMPT, *(["--nodes", "8"] if tiny else ())]


def _run(words: list[str]) -> None:
    from mxd.backend.cli.main import run

    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = run(words)
    if code != 0:
        raise RuntimeError(f"mxd {' '.join(words)}: {errors.getvalue().strip()[-1000:]}")


def _served(data: Path, device: str) -> int:
    """Number of tokens that the server routes."""
    from fastapi.testclient import TestClient

    from mxd.backend.api.app import create_app
    from mxd.backend.settings import Settings

    application = create_app(Settings(data=data, device=device))
    with TestClient(application, base_url="http://localhost") as client:
        answer = client.post(f"/api/runs/smoke-{LAYERS[0]}/routing", json={"text": PROMPT})
        if answer.status_code != 200:
            raise RuntimeError(f"The server answers {answer.status_code}: {answer.text[:1000]}")
        return len(answer.json()["tokens"])
