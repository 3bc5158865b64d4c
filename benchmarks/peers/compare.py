"""Comparison with the peers: interleaved rounds, medians of wall and CPU time, and quality by one function.

Shapes: T tokens, I input width, N experts, O output width, K active experts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.peers.inputs import WorkSizes, write_inputs
from benchmarks.peers.participants import OURS, Answer, Participant
from benchmarks.peers.scripts.protocol import Work
from benchmarks.trainer.timing import Machine, median_ratio
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import normalized_mse
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


@dataclass(frozen=True)
class PeerPoint:
    """Measurement of one participant on one piece of work."""

    work: Work
    participant: str
    wall_seconds: float
    """Median over rounds."""
    cpu_seconds: float
    """Median over rounds, all threads."""
    wall_speedup: float
    """Median over rounds of its wall time divided by ours. Below 1, the peer wins."""
    cpu_speedup: float
    """CPU time, likewise."""
    quality: float
    """Trained layers: normalised MSE on held-out tokens (0 is perfect). Routing: share of the gate's experts that it
    found. Index: active experts per token. Generation: number of new tokens, or of our events."""


@dataclass(frozen=True)
class PeersBench:
    """Result of ``python -m benchmarks peers``."""

    points: list[PeerPoint]
    versions: dict[str, str]
    rounds: int
    sizes: WorkSizes
    language_model: str
    layer: int
    machine: Machine


def bench_peers(
    run: Run,
    language_model: LanguageModel,
    text: Path,
    *,
    works: Sequence[Work],
    peers: Sequence[str],
    sizes: WorkSizes,
    rounds: int,
    threads: int,
    environments: Path,
    paper_code: Path | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> PeersBench:
    """Run each piece of work with us and with every peer that can do it, in turn; one more round warms up."""
    points: list[PeerPoint] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        held_out = write_inputs(Path(name), language_model, run, text, sizes)
        participants = [
            stack.enter_context(_running(Participant(each, Path(name), environments, threads, paper_code)))
            for each in (OURS, *peers)
        ]
        for number, work in enumerate(works):
            able = [each for each in participants if work in each.works]
            answers: dict[str, list[Answer]] = {each.name: [] for each in able}
            for turn in range(rounds + 1):
                for each in able:
                    answers[each.name].append(each.ask(work))
                callbacks.check_cancelled()
                callbacks.on_progress(number * (rounds + 1) + turn + 1, len(works) * (rounds + 1), work)
            points += [_point(work, each, answers, held_out, sizes.k) for each in answers]
        versions = {package: version for each in participants for package, version in each.versions.items()}
    machine = replace(Machine.here("cpu"), threads=threads)
    return PeersBench(points, versions, rounds, sizes, language_model.source, run.config.layer, machine)


@contextmanager
def _running(participant: Participant) -> Iterator[Participant]:
    try:
        yield participant
    finally:
        participant.stop()


def _point(
    work: Work, name: str, answers: Mapping[str, Sequence[Answer]], held_out: MlpActivations, k: int
) -> PeerPoint:
    theirs, ours = answers[name][1:], answers[OURS][1:]
    return PeerPoint(
        work=work,
        participant=name,
        wall_seconds=statistics.median(answer.wall for answer in theirs),
        cpu_seconds=statistics.median(answer.cpu for answer in theirs),
        wall_speedup=median_ratio([answer.wall for answer in theirs], [answer.wall for answer in ours]),
        cpu_speedup=median_ratio([answer.cpu for answer in theirs], [answer.cpu for answer in ours]),
        quality=_quality(work, theirs[-1].result, held_out, k),
    )


def _quality(work: Work, result: Any, held_out: MlpActivations, k: int) -> float:
    if isinstance(result, int | float):
        return float(result)
    if work == "mxd":
        return float(normalized_mse(load_file(result)["output"], held_out.output_TO))
    input_TI = held_out.input_TI if work == "transcoder" else held_out.output_TO
    return held_out_nmse(load_file(result), input_TI, held_out.output_TO, k)


def held_out_nmse(tensors: Mapping[str, Tensor], input_TI: Tensor, output_TO: Tensor, k: int) -> float:
    """Normalised MSE of a TopK layer with weights W_enc [N, I], b_enc [N], W_dec [N, O] and b_dec [O]."""
    scores_TN = (input_TI @ tensors["W_enc"].T + tensors["b_enc"]).relu()
    top = scores_TN.topk(k, dim=1)
    active_TN = torch.zeros_like(scores_TN).scatter_(1, top.indices, top.values)
    return float(normalized_mse(active_TN @ tensors["W_dec"] + tensors["b_dec"], output_TO))
