"""Evaluation of a run under all interventions, against one forward pass of the language model over the same text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.trainer.timing import Machine, Rounds, median_ratio
from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


@dataclass(frozen=True)
class EvaluatePoint:
    """Measurement of one run."""

    run: str
    layer: int
    forward_tokens_per_second: float
    """Speed of the language model alone, logits included."""
    interventions_ratio: float
    """Median ratio of the evaluation under all interventions to one forward pass over the text."""
    full_ratio: float
    """Median ratio of everything that ``mxd evaluate`` measures by default, with Jacobians and continuations."""


@dataclass(frozen=True)
class EvaluateBench:
    """Result of ``python -m benchmarks evaluate``."""

    points: list[EvaluatePoint]
    tokens: int
    language_model: str
    blocks: int
    machine: Machine


def bench_evaluate(
    language_model: LanguageModel,
    runs: Sequence[Run],
    config: EvaluateConfig,
    rounds: int,
    callbacks: Callbacks = NO_CALLBACKS,
) -> EvaluateBench:
    """Measure each run, alternatives interleaved. Rounds share nothing, nor do runs of one layer."""
    timing = Rounds(len(runs), rounds, callbacks)
    return EvaluateBench(
        points=[_point(language_model, run, config, timing) for run in runs],
        tokens=config.tokens,
        language_model=language_model.source,
        blocks=len(language_model.architecture.blocks),
        machine=Machine.here(str(language_model.device)),
    )


def _point(language_model: LanguageModel, run: Run, config: EvaluateConfig, timing: Rounds) -> EvaluatePoint:
    only_losses = config.model_copy(update={"prompts": 0, "jacobian_tokens": 0})
    ids_SL = Evaluator.open(config, language_model, NO_CALLBACKS).ids_SL

    def forward() -> None:
        with torch.no_grad():
            for ids_L in ids_SL:
                language_model.module(input_ids=ids_L[None], use_cache=False)  # with PyTorch's kernels

    seconds = timing.take(
        {
            "forward": forward,
            "interventions": lambda: _evaluate(language_model, run, only_losses),
            "full": lambda: _evaluate(language_model, run, config),
        },
        run.name,
    )
    return EvaluatePoint(
        run=run.name,
        layer=run.config.layer,
        forward_tokens_per_second=ids_SL.numel() / statistics.median(seconds["forward"]),
        interventions_ratio=median_ratio(seconds["interventions"], seconds["forward"]),
        full_ratio=median_ratio(seconds["full"], seconds["forward"]),
    )


def _evaluate(language_model: LanguageModel, run: Run, config: EvaluateConfig) -> None:
    evaluate(Evaluator.open(config, language_model, NO_CALLBACKS), run, seen_text=False)
