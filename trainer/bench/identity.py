"""Generations with no edits against transformers without us: the same tokens, or how many are not.

The reference is ``generate`` of transformers itself on the untouched language model, with its own cache, masks and
loop; only the random numbers are ours, put in by a logits processor. Both have rows of the same number and the same
seeds. The sample's language model is one of the architectures; the others have random weights and its tokenizer.

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

from trainer.bench.timing import Machine
from trainer.config import LayerConfig, Sampling, SteeringConfig, TextConfig, TrainConfig
from trainer.language_model import LanguageModel
from trainer.layers.registry import build_layer
from trainer.loading import load_module
from trainer.progress import Progress, silent
from trainer.routing import prompt_ids
from trainer.run import Run
from trainer.sampling import choose, gumbel_noise
from trainer.steering import NewToken, steer

PROMPTS = ("It was a long day, and in the evening", "def total(values):", "User: I need a table for two.\nSystem:")
SAMPLES = 8
"""Generations at once, each a row in transformers and, while both arms agree, two rows here."""


@dataclass(frozen=True)
class IdentityBench:
    """What ``mxd bench identity`` reports."""

    generations: int
    identical: int
    """Generations of which both arms have every token of the reference."""
    tokens: int
    """Of the references."""
    architectures: dict[str, int]
    """Architecture -> generations that were identical."""
    machine: Machine


class _World(NamedTuple):
    """A language model as we have it, a run of it, and the same language model as transformers alone has it."""

    language_model: LanguageModel
    run: Run
    untouched: PreTrainedModel


class _Choosing(LogitsProcessor):
    """Leaves nothing but the token that our random numbers choose, so that greedy search takes it."""

    def __init__(self, sampling: Sampling, start: int) -> None:
        self._sampling = sampling
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step, vocabulary = input_ids.shape[1] - self._start, scores.shape[1]
        seeds = [self._sampling.seed + row // 2 for row in range(len(scores))]
        noise_BV = torch.stack([gumbel_noise(seed, step, vocabulary) for seed in seeds])
        samplings = [self._sampling] * len(scores)
        chosen = choose(scores.float(), [set(ids) for ids in input_ids.tolist()], samplings, noise_BV)
        ids_B1 = torch.tensor(chosen, device=scores.device).unsqueeze(1)
        return torch.full_like(scores, -torch.inf).scatter(1, ids_B1, 0.0)


def bench_identity(
    language_model: LanguageModel, run: Run, generations: int, tokens: int, progress: Progress = silent
) -> IdentityBench:
    """Compare ``generations`` of ``tokens`` each, shared out evenly over three architectures."""
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
                progress(done, generations, f"{sum(identical.values())} identical")
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
    """For each sample: the tokens of our two arms, and those of transformers up to the end of text."""
    arms: list[dict[str, list[int]]] = [{"default": [], "steered": []} for _ in range(config.sampling.samples)]
    for step in steer(world.language_model, world.run, config):
        if isinstance(step, NewToken):
            arms[step.sample][step.arm].append(step.id)
    for ours, theirs in zip(arms, _reference(world, config), strict=True):
        yield (ours["default"], ours["steered"]), theirs[: len(ours["default"])]


@torch.inference_mode()
def _reference(world: _World, config: SteeringConfig) -> list[list[int]]:
    """What transformers generates without us, two equal rows a sample as ours have."""
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
    """Language models of two more architectures with random weights, and runs with random layers."""
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
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            for parameter in module.parameters():
                parameter.data.mul_(3.0)  # so that the text before matters
            language_model = LanguageModel(copy.deepcopy(module), tokenizer, name)
            found[name] = _World(language_model, _random_run(language_model, folder), module.eval())
    return found


def _random_run(language_model: LanguageModel, folder: Path) -> Run:
    shape = language_model.mlp_shape(1)
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
        text=TextConfig(text="none"),
        tokens=1,
    )
    run = Run.create(settings, folder, language_model.tokenizer)
    layer.save(run.folder)
    return run
