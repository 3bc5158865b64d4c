"""Routing and steering against the bare language model: what looking and steering cost.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.bench.timing import Machine, Rounds, median_ratio
from trainer.config import Edit, Sampling, SteeringConfig
from trainer.generation import Row, RowBatch
from trainer.language_model import LanguageModel
from trainer.predictions import predict
from trainer.progress import Progress, silent
from trainer.routing import prompt_ids, route
from trainer.run import Run
from trainer.sampling import choose, gumbel_noise
from trainer.steering import NewToken, Steering, steer

ROUTED_TOKENS = 256
PROMPT = "It was a long day, and in the evening"


@dataclass(frozen=True)
class GenerateBench:
    """What ``mxd bench generate`` reports."""

    routing_ratio: float
    """Seconds to route a text over those of one bare forward pass over it."""
    pair_speedup: float
    """Seconds of two plain ``generate`` calls, one after the other, over those of a default and steered pair."""
    batch_speedup: float
    """Seconds of 8 steered pairs one after the other over those of the same 8 in one batch."""
    stream_overhead: float
    """Seconds of a steered pair over those of its bare decode steps: the same rows read, tokens chosen, none told."""
    predictions_ratio: float
    """Seconds of what is told after a routing (predictions with and without the layer) over those of a forward pass."""
    routing_ms: float
    forward_ms: float
    pair_tokens_per_second: float
    """New tokens of both arms."""
    tokens: int
    machine: Machine


def bench_generate(
    language_model: LanguageModel, run: Run, tokens: int, rounds: int, progress: Progress = silent
) -> GenerateBench:
    """Time everything in turn; ``tokens`` are generated in each arm."""
    text = routed_text(language_model)
    ids_1T = torch.tensor([prompt_ids(language_model, text)])
    configs = [steering_config(run, tokens, seed) for seed in range(8)]
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: language_model.logits(ids_1T),
        "route": lambda: route(language_model, run, text),
        "predict": lambda: predict(language_model, run, text),
        "plain": lambda: _plain(language_model, tokens),
        "pair": lambda: list(steer(language_model, run, configs[0], {})),
        "bare": lambda: bare_step(language_model, run, configs[0]),
        "alone": lambda: [list(steer(language_model, run, config, {})) for config in configs],
        "together": lambda: _together(language_model, run, configs),
    }
    seconds = Rounds(1, rounds, progress).take(ways)
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
    """A pair whose arms part at once and write ``tokens`` each."""
    # No end of text is wanted before the last token, so every way generates the same number.
    sampling = Sampling(max_tokens=tokens, seed=seed, temperature=0.8)
    # The sample's French, so strong that the arms soon differ: what is equal is read once, and would flatter.
    edit = Edit(expert=min(2627, run.layer.config.num_experts - 1), mode="add", strength=30.0)
    return SteeringConfig(prompt=PROMPT, edits=(edit,), sampling=sampling)


def routed_text(language_model: LanguageModel) -> str:
    """A text of as many tokens as are routed."""
    tokens = ROUTED_TOKENS
    words = (PROMPT + " the old man went home. ") * tokens
    # Longer than the language model takes, so it is cut before anybody checks.
    ids = language_model.tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"]
    text = language_model.tokenizer.decode(ids[: tokens - 1])
    assert isinstance(text, str)
    return text


def _plain(language_model: LanguageModel, tokens: int) -> None:
    """Two ``generate`` calls of transformers, one after the other."""
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
    """Seconds of a bare decode step of a pair that has parted: its rows are read, the tokens of both texts chosen."""
    started = time.perf_counter()
    steering = Steering.prepare(language_model, [run], config, {})
    sampling, prompt = config.sampling, steering.prompt
    texts = [list(prompt), list(prompt)]
    rows = [Row(ids, edits) for ids in texts for edits in (steering.plain, steering.edited)]
    batch = RowBatch(language_model)
    step = batch.join(rows[:2], [(place % 2, row) for place, row in enumerate(rows)])
    for position in range(sampling.max_tokens):
        noise_2V = gumbel_noise(sampling.seed, position, step.logits_BV.shape[1]).expand(2, -1)
        chosen = choose(step.logits_BV[[0, 3]], [set(ids) for ids in texts], [sampling] * 2, noise_2V)
        for ids, token in zip(texts, chosen, strict=True):
            ids.append(token)
        if position + 1 < sampling.max_tokens:
            step = batch.step()
    return (time.perf_counter() - started) / sampling.max_tokens


def _together(language_model: LanguageModel, run: Run, configs: list[SteeringConfig]) -> int:
    batch = RowBatch(language_model)
    going = [Steering.prepare(language_model, [run], config, {}) for config in configs]
    found = sum(isinstance(step, NewToken) for each in going for step in each.join(batch))
    while going := [each for each in going if not each.finished]:
        step = batch.step()
        found += sum(isinstance(it, NewToken) for each in going for it in each.advance(batch, step))
    return found
