"""Indexing from text to database, against the language model's forward pass up to the MLP and the gate alone."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.trainer.memory import peak_bytes
from benchmarks.trainer.sizes import Sizes, write_text
from benchmarks.trainer.timing import Machine, Rounds
from benchmarks.trainer.train import random_ids
from mxd.trainer.analysis.indexing.build import TOKENS_PER_BATCH, IndexBuilder, build_index, collect, route_in_parts
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from mxd.trainer.utils.memory import keep_freed_memory


@dataclass(frozen=True)
class IndexPoint:
    """Measurement at one choice of sizes."""

    num_experts: int
    k: int
    tokens: int
    efficiency: float
    """Median ratio of forward pass and gate alone to reading and counting the text."""
    whole_efficiency: float
    """Median ratio of forward pass and gate alone to all of ``mxd index``, including database writes."""
    tokens_per_second: float
    """Tokens per second of reading and counting."""
    forward_tokens_per_second: float
    peak_memory: int
    """Peak memory in bytes, in a separate process."""


@dataclass(frozen=True)
class IndexBench:
    """Result of ``python -m benchmarks index``."""

    efficiency: float
    """Value at the last point."""
    tokens_per_second: float
    """Value at the last point."""
    peak_memory: int
    """Value at the last point, in bytes."""
    memory_growth: float
    """Peak memory at the most tokens divided by that at the fewest, at the last N and K."""
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
    callbacks: Callbacks = NO_CALLBACKS,
) -> IndexBench:
    """Measure every choice of sizes at every number of tokens, alternatives interleaved."""
    keep_freed_memory()  # as mxd index does
    points: list[IndexPoint] = []
    timing = Rounds(len(sizes) * len(tokens), rounds, callbacks)
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
        "forward": lambda: route_alone(language_model, size, run, tokens),
        "gather": lambda: _collect(run, tokens, language_model),
        "index": lambda: index_once(run, tokens, language_model),
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
def route_alone(language_model: LanguageModel, size: Sizes, run: Run, tokens: int) -> None:
    """Run only the forward pass up to the MLP, and the gate, over this many tokens."""
    layer = run.layer.to(language_model.device_of(run.config.layer))
    per_batch = max(1, TOKENS_PER_BATCH // size.context)
    ids_BC = random_ids(language_model, per_batch, size.context)
    left = max(1, tokens // size.context)
    while left > 0:
        route_in_parts(layer, language_model.mlp_inputs([size.layer], ids_BC[:left])[size.layer].float())
        left -= per_batch


def _collect(run: Run, tokens: int, language_model: LanguageModel) -> None:
    config = _config(run, tokens)
    builder = IndexBuilder(run, config, language_model)
    with closing(builder.token_counts):
        collect(builder, run, config, language_model, SINGLE_PROCESS, NO_CALLBACKS)


def index_once(run: Run, tokens: int, language_model: LanguageModel) -> None:
    """Index a run into a temporary database."""
    with tempfile.TemporaryDirectory(dir=run.folder) as data:
        database = open_trainer_database(sqlite_url(Path(data)))
        register_run(run, database)
        build_index(run, _config(run, tokens), language_model, database)
        database.dispose()


def _alone(size: Sizes, run_folder: Path, tokens: int, device: str) -> None:
    keep_freed_memory()
    run = Run.load(run_folder, run_folder.parent.parent)
    index_once(run, tokens, size.as_indexed(run.tokenizer, device))
