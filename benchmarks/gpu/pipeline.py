"""Throughput of training, indexing and generation on a language model of GPT-2's shape with random weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from benchmarks.gpu.sections import Point, Setting
from benchmarks.gpu.smoke import DEMO
from benchmarks.trainer.generate import bench_generate
from benchmarks.trainer.index import index_once, route_alone
from benchmarks.trainer.sizes import Sizes, write_text
from benchmarks.trainer.train import bare_steps, forward_alone, train_once
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.utils.memory import keep_freed_memory

GPT2 = Sizes(width=768, layers=9, num_experts=21_490, k=32)
"""GPT-2 up to layer 8, with the paper's MxD."""
TINY = Sizes(width=64, layers=2, num_experts=101, k=4, context=32)


@dataclass(frozen=True)
class _World:
    """Sizes, tokenizer and random text of a section."""

    size: Sizes
    tokenizer: PreTrainedTokenizerBase
    text: Path
    folder: Path
    device: str
    tiny: bool

    @classmethod
    @contextmanager
    def open(cls, setting: Setting, text_tokens: int) -> Iterator[_World]:
        keep_freed_memory()  # as the commands do
        tokenizer = load_tokenizer(str(DEMO / "language-model"))
        with tempfile.TemporaryDirectory() as name:
            text = write_text(Path(name) / "text.jsonl", tokenizer, text_tokens)
            yield cls(TINY if setting.tiny else GPT2, tokenizer, text, Path(name), setting.device, setting.tiny)


def throughput_points(setting: Setting) -> Iterator[Point]:
    """Training from text to weights, and its parts alone, each once after a short warm-up."""
    with _World.open(setting, 512 if setting.tiny else 1_000_000) as world:
        size, device = world.size, world.device
        language_model = size.as_fitted(world.tokenizer, device)
        warm, tokens, batch = (64, 256, 64) if world.tiny else (131_072, 4_194_304, 4096)
        ways: dict[str, Callable[[int], object]] = {
            "forward": lambda count: forward_alone(language_model, size, count),
            "steps": lambda count: bare_steps(size, batch, count // batch, device)(),
            "train": lambda count: train_once(size, world.text, world.folder, count, batch, language_model),
        }
        for name, way in ways.items():
            way(warm)
            yield {"part": name, "tokens": tokens, "tokens_per_second": tokens / _seconds(lambda w=way: w(tokens))}  # type: ignore[misc]
        yield {"part": "memory", "peak_bytes": _peak_bytes(device)}


def index_points(setting: Setting) -> Iterator[Point]:
    """Indexing from text to database, and the forward pass with the gate alone."""
    with _World.open(setting, 512 if setting.tiny else 1_000_000) as world:
        size = world.size
        language_model = size.as_indexed(world.tokenizer, world.device)
        run = size.finished_run(world.folder / "data", world.text, world.tokenizer)
        warm, tokens = (64, 256) if world.tiny else (65_536, 1_048_576)
        ways: dict[str, Callable[[int], object]] = {
            "forward": lambda count: route_alone(language_model, size, run, count),
            "index": lambda count: index_once(run, count, language_model),
        }
        for name, way in ways.items():
            way(warm)
            yield {"part": name, "tokens": tokens, "tokens_per_second": tokens / _seconds(lambda w=way: w(tokens))}  # type: ignore[misc]


def live_points(setting: Setting) -> Iterator[Point]:
    """Routing and steering against the bare language model."""
    with _World.open(setting, 512 if setting.tiny else 100_000) as world:
        size = world.size
        language_model = size.as_indexed(world.tokenizer, world.device)
        run = size.finished_run(world.folder / "data", world.text, world.tokenizer)
        found = bench_generate(language_model, run, 3 if world.tiny else 64, 1 if world.tiny else 3)
        yield asdict(found)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _peak_bytes(device: str) -> int | None:
    return torch.cuda.max_memory_allocated() if device.startswith("cuda") else None
