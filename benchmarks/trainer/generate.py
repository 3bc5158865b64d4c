"""Overhead of routing and steering over the bare language model.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.trainer.timing import Machine, Rounds, median_ratio
from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.generation import RowBatch, SequenceState, gumbel_noise, sample_tokens
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.routing import predict, route
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.inference.units import Units
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

ROUTED_TOKENS = 256
PROMPT = "It was a long day, and in the evening"


@dataclass(frozen=True)
class GenerateBench:
    """Result of ``python -m benchmarks generate``."""

    routing_ratio: float
    """Time to route a text divided by one bare forward pass over it."""
    pair_speedup: float
    """Time of two plain ``generate`` calls in sequence divided by a baseline and steered pair."""
    batch_speedup: float
    """Time of 8 steered pairs in sequence divided by the same 8 in one batch."""
    stream_overhead: float
    """Time of a steered pair divided by its bare decode steps: same rows, tokens sampled, nothing reported."""
    predictions_ratio: float
    """Time of the report after a routing (predictions with and without the layer) divided by a forward pass."""
    routing_ms: float
    forward_ms: float
    pair_tokens_per_second: float
    """New tokens of both variants."""
    tokens: int
    machine: Machine


def bench_generate(
    language_model: LanguageModel, run: Run, tokens: int, rounds: int, callbacks: Callbacks = NO_CALLBACKS
) -> GenerateBench:
    """Time all alternatives, interleaved; ``tokens`` are generated per variant."""
    text = routed_text(language_model)
    ids_1T = torch.tensor([prompt_ids(language_model, text)])
    configs = [steering_config(run, tokens, seed) for seed in range(8)]
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: language_model.logits(ids_1T),
        "route": lambda: route(language_model, run, text),
        "predict": lambda: predict(language_model, run, text),
        "plain": lambda: _plain(language_model, tokens),
        "pair": lambda: list(steer(language_model, run, configs[0], units_of_one(run, configs[0]))),
        "bare": lambda: bare_step(language_model, run, configs[0]),
        "alone": lambda: [list(steer(language_model, run, config, units_of_one(run, config))) for config in configs],
        "together": lambda: steer_together(
            language_model,
            [Steering.prepare(language_model, [run], config, units_of_one(run, config)) for config in configs],
        ),
    }
    seconds = Rounds(1, rounds, callbacks).take(ways)
    pair = statistics.median(seconds["pair"])
    return GenerateBench(
        routing_ratio=median_ratio(seconds["route"], seconds["forward"]),
        pair_speedup=median_ratio(seconds["plain"], seconds["pair"]),
        batch_speedup=median_ratio(seconds["alone"], seconds["together"]),
        stream_overhead=median_ratio(seconds["pair"], seconds["bare"]),
        predictions_ratio=median_ratio(seconds["predict"], seconds["forward"]),
        routing_ms=1000 * statistics.median(seconds["route"]),
        forward_ms=1000 * statistics.median(seconds["forward"]),
        pair_tokens_per_second=2 * tokens / pair,
        tokens=tokens,
        machine=Machine.here(language_model.device.type),
    )


def steering_config(run: Run, tokens: int, seed: int) -> SteeringConfig:
    """A pair whose variants diverge early and generate ``tokens`` each."""
    # The end-of-text token is suppressed, so every alternative generates the same number of tokens.
    sampling = Sampling(max_tokens=tokens, seed=seed, temperature=0.8)
    # So strong that the variants soon diverge: shared tokens are computed only once.
    edit = Edit(expert=min(2627, run.layer.config.num_experts - 1), mode="add", strength=30.0)
    return SteeringConfig(prompt=PROMPT, edits=(edit,), sampling=sampling)


def units_of_one(run: Run, config: SteeringConfig) -> Units:
    """Units of 1 for all edits, for runs without an index."""
    return {run.name: {edit.expert: 1.0 for edit in config.edits}}


def routed_text(language_model: LanguageModel) -> str:
    """Return a text of as many tokens as are routed."""
    tokens = ROUTED_TOKENS
    words = (PROMPT + " the old man went home. ") * tokens
    # Longer than the language model's limit, so it is truncated first.
    ids = language_model.tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
    text = language_model.tokenizer.decode(ids[: tokens - 1])
    assert isinstance(text, str)
    return text


def _plain(language_model: LanguageModel, tokens: int) -> None:
    """Two ``generate`` calls of transformers in sequence."""
    ids_1T = torch.tensor([prompt_ids(language_model, PROMPT)], device=language_model.device)
    for seed in range(2):
        torch.manual_seed(seed)
        language_model.module.generate(
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            do_sample=True,
            temperature=0.8,
            top_p=0.95,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=int(ids_1T[0, 0]),
        )


def bare_step(language_model: LanguageModel, run: Run, config: SteeringConfig) -> float:
    """Seconds of a bare decode step of a diverged pair: both rows are read, both tokens sampled."""
    started = time.perf_counter()
    steering = Steering.prepare(language_model, [run], config, units_of_one(run, config))
    sampling, prompt = config.sampling, steering.prompt
    texts = [list(prompt), list(prompt)]
    rows = [SequenceState(ids, edits) for ids in texts for edits in (steering.baseline, steering.steered)]
    batch = RowBatch(language_model)
    step = batch.join(rows[:2], [(place % 2, row) for place, row in enumerate(rows)])
    for position in range(sampling.max_tokens):
        noise_2V = gumbel_noise(sampling.seed, position, step.logits_BV.shape[1]).expand(2, -1)
        chosen = sample_tokens(step.logits_BV[[0, 3]], [set(ids) for ids in texts], [sampling] * 2, noise_2V)
        for ids, token in zip(texts, chosen, strict=True):
            ids.append(token)
        if position + 1 < sampling.max_tokens:
            step = batch.step()
    return (time.perf_counter() - started) / sampling.max_tokens


def steer_together(language_model: LanguageModel, requests: Sequence[Steering]) -> int:
    """Answer several requests in one batch. Returns the number of token events."""
    batch, going = RowBatch(language_model), list(requests)
    found = sum(isinstance(step, TokenEvent) for each in going for step in each.join(batch))
    while going := [each for each in going if not each.finished]:
        step = batch.step()
        found += sum(isinstance(it, TokenEvent) for each in going for it in each.advance(batch, step))
    return found
