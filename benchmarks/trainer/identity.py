"""Generations without edits against plain transformers: identical tokens, or the number of differences.

The reference is ``generate`` of transformers on the original language model, with its own cache, masks and loop. Only
the random numbers are ours, inserted by a logits processor. Both use the same number of rows and the same seeds. The
demo's language model is one of the architectures; the others have random weights and its tokenizer.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from benchmarks.trainer.timing import Machine
from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.steering import Sampling, SteeringConfig
from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.inference.generation import gumbel_noise, sample_tokens
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.loading import load_module
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

PROMPTS = ("It was a long day, and in the evening", "def total(values):", "User: I need a table for two.\nSystem:")
SAMPLES = 8
"""Parallel generations, each one row in transformers and, while the variants agree, two rows here."""


@dataclass(frozen=True)
class IdentityBench:
    """Result of ``python -m benchmarks identity``."""

    generations: int
    identical: int
    """Generations of which both variants have every token of the reference."""
    tokens: int
    """Tokens of the references."""
    architectures: dict[str, int]
    """Architecture -> number of identical generations."""
    machine: Machine


class _World(NamedTuple):
    """A language model in our wrapper with a run, and the same model in plain transformers."""

    language_model: LanguageModel
    run: Run
    untouched: PreTrainedModel


class _Choosing(LogitsProcessor):
    """Masks everything but the token that our random numbers select, so that greedy search selects it."""

    def __init__(self, sampling: Sampling, start: int) -> None:
        self._sampling = sampling
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step, vocabulary = input_ids.shape[1] - self._start, scores.shape[1]
        seeds = [self._sampling.seed + row // 2 for row in range(len(scores))]
        noise_BV = torch.stack([gumbel_noise(seed, step, vocabulary) for seed in seeds])
        samplings = [self._sampling] * len(scores)
        chosen = sample_tokens(scores.float(), [set(ids) for ids in input_ids.tolist()], samplings, noise_BV)
        ids_B1 = torch.tensor(chosen, device=scores.device).unsqueeze(1)
        return torch.full_like(scores, -torch.inf).scatter(1, ids_B1, 0.0)


def bench_identity(
    language_model: LanguageModel, run: Run, generations: int, tokens: int, callbacks: Callbacks = NO_CALLBACKS
) -> IdentityBench:
    """Compare ``generations`` of ``tokens`` each, divided over three architectures."""
    identical: dict[str, int] = {}
    done = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        untouched = load_module(language_model.source, language_model.dtype).eval()
        untouched.to(language_model.device)
        sample = _World(language_model, run, untouched)
        worlds = {"llama": sample, **_random(language_model.tokenizer, Path(folder))}
        for number, (name, world) in enumerate(worlds.items()):
            wanted = generations * (number + 1) // len(worlds)
            identical[name] = 0
            while done < wanted:
                config = _config(done, tokens, min(SAMPLES, wanted - done))
                pairs = list(_both(world, config))
                identical[name] += sum(ours == (theirs, theirs) for ours, theirs in pairs)
                compared += sum(len(theirs) for _, theirs in pairs)
                done += len(pairs)
                callbacks.check_cancelled()
                callbacks.on_progress(done, generations, f"{sum(identical.values())} identical")
    return IdentityBench(
        generations=done,
        identical=sum(identical.values()),
        tokens=compared,
        architectures=identical,
        machine=Machine.here(language_model.device.type),
    )


def _config(seed: int, tokens: int, samples: int) -> SteeringConfig:
    sampling = Sampling(max_tokens=tokens, temperature=1.0, top_p=0.95, seed=seed, samples=samples)
    return SteeringConfig(prompt=PROMPTS[seed % len(PROMPTS)], sampling=sampling)


def _both(world: _World, config: SteeringConfig) -> Iterator[tuple[tuple[list[int], ...], list[int]]]:
    """Return, per sample, the tokens of our two variants, and those of transformers up to the end of text."""
    arms: list[dict[str, list[int]]] = [{"baseline": [], "steered": []} for _ in range(config.sampling.samples)]
    for step in steer(world.language_model, world.run, config):
        if isinstance(step, TokenEvent):
            arms[step.sample][step.variant].append(step.id)
    for ours, theirs in zip(arms, _reference(world, config), strict=True):
        yield (ours["baseline"], ours["steered"]), theirs[: len(ours["baseline"])]


@torch.inference_mode()
def _reference(world: _World, config: SteeringConfig) -> list[list[int]]:
    """Generate with transformers, two equal rows per sample as in our engine."""
    ids, sampling = prompt_ids(world.language_model, config.prompt), config.sampling
    rows_BT = torch.tensor([ids] * 2 * sampling.samples, device=world.untouched.device)
    written_BT: Tensor = world.untouched.generate(  # type: ignore[operator]
        rows_BT,
        attention_mask=torch.ones_like(rows_BT),
        do_sample=False,
        max_new_tokens=sampling.max_tokens,
        pad_token_id=ids[0],
        logits_processor=LogitsProcessorList([_Choosing(sampling, len(ids))]),
    )
    tokens: list[list[int]] = written_BT[::2, len(ids) :].tolist()
    return tokens


def _random(tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, _World]:
    """Return language models of two more architectures with random weights, and runs with random layers."""
    size = len(tokenizer)
    ends = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    configs = {
        "gpt2": GPT2Config(vocab_size=size, n_embd=64, n_layer=3, n_head=4, n_positions=512, **ends),
        "gpt-neox": GPTNeoXConfig(
            vocab_size=size,
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=512,
            **ends,
        ),
    }
    found = {}
    for name, config in configs.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            for parameter in module.parameters():
                parameter.data.mul_(3.0)  # so that the prompt matters
            language_model = LanguageModel(copy.deepcopy(module), tokenizer, name)
            found[name] = _World(language_model, _random_run(language_model, folder), module.eval())
    return found


def _random_run(language_model: LanguageModel, folder: Path) -> Run:
    shape = language_model.architecture.mlp_shape(1)
    layer = build_layer(
        LayerConfig(
            input_width=shape.input_width,
            hidden_width=shape.hidden_width,
            output_width=shape.output_width,
            num_experts=64,
            k=8,
            activation=shape.activation,
            encoder=shape.encoder,
        )
    )
    settings = TrainConfig(
        name=language_model.source,
        language_model=language_model.source,
        layer=1,
        text=TextConfig(dataset="none"),
        tokens=1,
    )
    run = Run.create(settings, folder, language_model.tokenizer)
    layer.save(run.folder)
    return run
