"""Indexing from text to store, against the language model's forward pass up to the MLP and the gate alone."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.bench.memory import peak_bytes
from trainer.bench.sizes import Sizes, write_text
from trainer.bench.timing import Machine, Rounds
from trainer.bench.train import random_ids
from trainer.config import IndexConfig, TextConfig
from trainer.distributed import ALONE
from trainer.heap import keep_freed_memory
from trainer.indexing import build_index
from trainer.indexing.gather import TOKENS_PER_BATCH, Gathered, gather, route_in_parts
from trainer.language_model import LanguageModel
from trainer.progress import Progress, never, silent
from trainer.registration import register_run
from trainer.run import Run
from trainer.store import open_store, sqlite_url
from trainer.tokens import load_tokenizer


@dataclass(frozen=True)
class IndexPoint:
    """One choice of sizes."""

    num_experts: int
    k: int
    tokens: int
    efficiency: float
    """Median over rounds of seconds of the forward pass and gate alone / seconds of reading and counting the text."""
    whole_efficiency: float
    """The same over all of ``mxd index``: writing to the store too, which does not grow with the text for long."""
    tokens_per_second: float
    """Of reading and counting."""
    forward_tokens_per_second: float
    peak_memory: int
    """Bytes, of a process that does nothing else."""


@dataclass(frozen=True)
class IndexBench:
    """What ``mxd bench index`` reports."""

    efficiency: float
    """Of the last point."""
    tokens_per_second: float
    """Of the last point."""
    peak_memory: int
    """Of the last point, bytes."""
    memory_growth: float
    """Peak memory of the most tokens over that of the fewest, with the last choice of N and K."""
    points: list[IndexPoint]
    width: int
    layers: int
    machine: Machine


def bench_index(
    tokenizer_folder: Path,
    sizes: Sequence[Sizes],
    tokens: Sequence[int],
    rounds: int,
    device: str,
    progress: Progress = silent,
) -> IndexBench:
    """Measure every choice of sizes with every number of tokens, the ways in turn."""
    keep_freed_memory()  # as mxd index does
    points: list[IndexPoint] = []
    timing = Rounds(len(sizes) * len(tokens), rounds, progress)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(folder / "text.jsonl", load_tokenizer(str(tokenizer_folder)), min(max(tokens), 1_000_000))
        for number, size in enumerate(sizes):
            run = size.finished_run(folder / str(number), text, load_tokenizer(str(tokenizer_folder)))
            points.extend(_point(size, count, timing, device, run) for count in tokens)
    last, first = points[-1], points[-len(tokens)]
    return IndexBench(
        last.efficiency,
        last.tokens_per_second,
        last.peak_memory,
        last.peak_memory / first.peak_memory,
        points,
        sizes[-1].width,
        sizes[-1].layers,
        Machine.here(device),
    )


def _config(run: Run, tokens: int) -> IndexConfig:
    text: TextConfig = run.config.text
    return IndexConfig(text=text, tokens=tokens)


def _point(size: Sizes, tokens: int, timing: Rounds, device: str, run: Run) -> IndexPoint:
    language_model = size.as_indexed(run.tokenizer, device)
    ways = {
        "forward": lambda: _forward_alone(language_model, size, run, tokens),
        "gather": lambda: _gather(run, tokens, language_model),
        "index": lambda: _index(run, tokens, language_model),
    }
    seconds = timing.take(ways, f"N {size.num_experts:,}, K {size.k}, {tokens:,} tokens")

    def efficiency(way: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds["forward"], seconds[way], strict=True))

    return IndexPoint(
        num_experts=size.num_experts,
        k=size.k,
        tokens=tokens,
        efficiency=efficiency("gather"),
        whole_efficiency=efficiency("index"),
        tokens_per_second=tokens / statistics.median(seconds["gather"]),
        forward_tokens_per_second=tokens / statistics.median(seconds["forward"]),
        peak_memory=peak_bytes(_alone, size, run.folder, tokens, device),
    )


@torch.inference_mode()
def _forward_alone(language_model: LanguageModel, size: Sizes, run: Run, tokens: int) -> None:
    layer = run.layer.to(language_model.device_of(run.config.layer))
    per_batch = max(1, TOKENS_PER_BATCH // size.context)
    ids_BC = random_ids(language_model, per_batch, size.context)
    left = max(1, tokens // size.context)
    while left > 0:
        route_in_parts(layer, language_model.mlp_inputs([size.layer], ids_BC[:left])[size.layer].float())
        left -= per_batch


def _gather(run: Run, tokens: int, language_model: LanguageModel) -> None:
    config = _config(run, tokens)
    with closing(Gathered.nothing(run, config, language_model)) as gathered:
        gather(gathered, run, config, language_model, ALONE, silent, never)


def _index(run: Run, tokens: int, language_model: LanguageModel) -> None:
    with tempfile.TemporaryDirectory(dir=run.folder) as data:
        store = open_store(sqlite_url(Path(data)))
        register_run(run, store)
        build_index(run, _config(run, tokens), language_model, store)
        store.dispose()


def _alone(size: Sizes, run_folder: Path, tokens: int, device: str) -> None:
    keep_freed_memory()
    run = Run.load(run_folder, run_folder.parent.parent)
    _index(run, tokens, size.as_indexed(run.tokenizer, device))
