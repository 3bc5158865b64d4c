"""Steering: exact without edits, comparable token by token, and equal in all architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.config import Edit, Sampling, SteeringConfig, TrainConfig
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.inference.generation import RowBatch, StepOutput, gumbel_noise, run_alone, sample_tokens
from mxd.trainer.inference.results import DoneEvent, TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import tiny_language_model
from tests.helpers.layers import random_layer
from tests.helpers.runs import World

PROMPT = "the old fox"


def make_run(world: World, seed: int = 0) -> Run:
    """A run with a random, untrained sparse layer for layer 1."""
    run = Run(world.data, TrainConfig.model_validate(world.config().model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=seed)
    return run


def steered(language_model: LanguageModel, run: Run, **settings: Any) -> list[Any]:
    sampling = Sampling.model_validate({"max_tokens": 12, "temperature": 1.0, **settings.pop("sampling", {})})
    return list(steer(language_model, run, SteeringConfig(prompt=PROMPT, sampling=sampling, **settings)))


def ids_of(steps: list[Any], arm: str) -> list[int]:
    return [step.id for step in steps if isinstance(step, TokenEvent) and step.variant == arm]


def divergences(steps: list[Any], arm: str) -> list[float]:
    return [step.kl for step in steps if isinstance(step, TokenEvent) and step.variant == arm]


def plain_generation(language_model: LanguageModel, sampling: Sampling) -> list[int]:
    """Generation by full forward passes on two rows, without a cache."""
    ids = prompt_ids(language_model, PROMPT)
    start = len(ids)
    for step in range(sampling.max_tokens):
        logits_RV = language_model.logits(torch.tensor([ids, ids]))[:, -1]
        noise_RV = gumbel_noise(sampling.seed, step, logits_RV.shape[1]).expand(2, -1)
        ids.append(sample_tokens(logits_RV, [set(ids)] * 2, [sampling] * 2, noise_RV)[0])
        if ids[-1] == 0:
            break
    return ids[start:]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt", "gemma2", "falcon"])
@pytest.mark.parametrize("seed", range(2))
def test_without_edits_both_variants_equal_the_original_model(world: World, family: str, seed: int) -> None:
    language_model = tiny_language_model(family)
    steps = steered(language_model, make_run(world), sampling={"seed": seed})
    expected = plain_generation(language_model, Sampling(max_tokens=12, temperature=1.0, seed=seed))
    assert ids_of(steps, "baseline") == ids_of(steps, "steered") == expected
    for step in steps:
        if isinstance(step, TokenEvent):
            assert (step.delta_log_probability, step.kl) == (0.0, 0.0)


def test_the_baseline_is_independent_of_the_edits(world: World) -> None:
    run = make_run(world)
    plain = steered(world.language_model, run)
    edited = steered(world.language_model, run, edits=(Edit(expert=3, mode="add", strength=30),))
    assert ids_of(plain, "baseline") == ids_of(edited, "baseline")
    assert ids_of(edited, "steered") != ids_of(edited, "baseline")


@pytest.mark.parametrize("mode", ["residual", "replace"])
def test_differences_compare_the_same_text(world: World, mode: str) -> None:
    """Each token's Δ log p equals that of two plain forward passes over the variant's text."""
    run = make_run(world)
    edits = (Edit(expert=3, mode="add", strength=5), Edit(expert=7, mode="scale", strength=3))
    steps = steered(world.language_model, run, edits=edits, mode=mode)
    for arm in ("baseline", "steered"):
        tokens = [step for step in steps if isinstance(step, TokenEvent) and step.variant == arm]
        ids = prompt_ids(world.language_model, PROMPT) + [token.id for token in tokens]
        without, with_edits = (log_probabilities(world, run, ids, e, mode) for e in ((), edits))
        start = len(ids) - len(tokens)
        for index, token in enumerate(tokens, start=start - 1):
            own, other = (with_edits, without) if arm == "steered" else (without, with_edits)
            change = (with_edits[index] - without[index])[token.id].item()
            assert token.delta_log_probability == pytest.approx(change, abs=1e-3)
            assert token.probability == pytest.approx(own[index, token.id].exp().item(), rel=1e-3)
            kl = (own[index].exp() * (own[index] - other[index])).sum().item()
            assert token.kl == pytest.approx(kl, abs=1e-3)
            assert token.alternatives[0].id == own[index].argmax()
            assert token.other_alternatives[0].id == other[index].argmax()


def log_probabilities(world: World, run: Run, ids: list[int], edits: tuple[Edit, ...], mode: str) -> torch.Tensor:
    def answer(x: torch.Tensor, mlp: Any) -> torch.Tensor:
        z_TI = x.reshape(-1, 16)
        output = mlp() if mode == "residual" else run.layer(z_TI).output_TO.reshape(x.shape)
        routing = run.layer.route(z_TI)
        for edit in edits:
            live_T = (routing.activations_TK * (routing.indices_TK == edit.expert)).sum(1)
            new_T = live_T + edit.strength if edit.mode == "add" else live_T * edit.strength
            own_TO = run.layer.encode(z_TI) @ run.layer.expert_matrix(edit.expert)  # type: ignore[operator]
            output = output + ((new_T - live_T).unsqueeze(1) * own_TO).reshape(x.shape)
        return torch.as_tensor(output)

    with world.language_model.replace_mlps({1: answer}):
        log_p_TV = world.language_model.logits(torch.tensor([ids]))[0].log_softmax(-1)
        return log_p_TV


def test_scope(world: World) -> None:
    run, edits = make_run(world), (Edit(expert=3, mode="add", strength=30),)
    everywhere, generated, prompt = (
        divergences(steered(world.language_model, run, edits=edits, scope=scope), "baseline")
        for scope in ("all", "generated", "prompt")
    )
    # The first token follows the prompt alone, so an edit of generated tokens cannot touch it.
    assert generated[0] == 0 < prompt[0] == pytest.approx(everywhere[0])
    assert all(0 < g != a for g, a in zip(generated[1:], everywhere[1:], strict=True))
    # An edited prompt is still seen through attention.
    assert all(0 < p != a for p, a in zip(prompt[1:], everywhere[1:], strict=True))


def test_token_texts_join_to_the_text(world: World) -> None:
    steps = steered(world.language_model, make_run(world), sampling={"max_tokens": 40, "seed": 5})
    tokens = [step for step in steps if isinstance(step, TokenEvent) and step.variant == "baseline"]
    whole = world.language_model.tokenizer.decode([token.id for token in tokens])
    assert isinstance(whole, str)
    assert whole.startswith("".join(token.text for token in tokens))


def test_stop_text(world: World) -> None:
    run = make_run(world)
    free = [s for s in steered(world.language_model, run, sampling={"seed": 2}) if isinstance(s, TokenEvent)]
    text = "".join(step.text for step in free if step.variant == "baseline")
    cut = next(index for index, character in enumerate(text) if character.isascii() and character.isprintable())
    steps = steered(world.language_model, run, sampling={"seed": 2, "stop": (text[cut],)})
    assert isinstance(steps[-1], DoneEvent)
    assert steps[-1].baseline_reason == "stop"
    assert len(ids_of(steps, "baseline")) < len(free) / 2 + 1


def test_invalid_requests(world: World) -> None:
    run = make_run(world)
    with pytest.raises(UserError, match="Unknown expert 33"):
        steered(world.language_model, run, edits=(Edit(expert=33, mode="ablate"),))
    with pytest.raises(TooLongError, match="Shorten the text"):
        steered(world.language_model, run, sampling={"max_tokens": 120})


def test_variants_share_rows_until_they_differ(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> StepOutput:
        sizes.append(len(batch.rows))
        return step(batch)

    monkeypatch.setattr(RowBatch, "step", counted)
    steered(world.language_model, make_run(world))
    assert set(sizes) == {1}
    sizes.clear()
    for seed in range(4):
        edits = (Edit(expert=3, mode="add", strength=8),)
        steered(world.language_model, make_run(world), edits=edits, sampling={"seed": seed})
    assert set(sizes) == {2, 4}


def test_the_steered_variant_alone_is_the_same(world: World) -> None:
    run, edits = make_run(world), (Edit(expert=3, mode="add", strength=8),)
    sampling = Sampling(max_tokens=12, temperature=1.0, samples=2)
    config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling)
    steps = [step for step in steer(world.language_model, run, config) if isinstance(step, TokenEvent)]
    texts = ["".join(s.text for s in steps if (s.variant, s.sample) == ("steered", sample)) for sample in range(2)]
    alone = list(run_alone(world.language_model, Steering.prepare(world.language_model, [run], config).alone()))
    assert texts == ["".join(s.text for s in alone if getattr(s, "sample", None) == sample) for sample in range(2)]


def test_units_are_read_from_the_run(world: World, tmp_path: Path) -> None:
    run = make_run(world)
    saved = Run(tmp_path, run.config)
    saved.__dict__["layer"] = run.layer
    saved.write_units({3: 4.0})
    edits = (Edit(expert=3, mode="add", strength=2),)
    by_unit = steered(world.language_model, saved, edits=edits)
    by_hand = steered(world.language_model, run, edits=(Edit(expert=3, mode="add", strength=8),))
    assert divergences(by_unit, "baseline") == divergences(by_hand, "baseline")
    (tmp_path / "units.json").write_text("[1, 2]")
    del saved.__dict__["units"]
    with pytest.raises(UserError, match="Invalid units"):
        steered(world.language_model, saved, edits=edits)


@pytest.mark.parametrize("mode", ["residual", "replace"])
def test_smaller_k_equals_a_layer_with_that_k(world: World, mode: str) -> None:
    run, narrow = make_run(world), make_run(world)
    narrow.__dict__["layer"] = run.layer.at_k(2)
    edits = (Edit(expert=3, mode="add", strength=5), Edit(expert=7, mode="scale", strength=3))
    actual = steered(world.language_model, run, edits=edits, mode=mode, k=2)
    expected = steered(world.language_model, narrow, edits=edits, mode=mode)
    tokens = [[each for each in steps if isinstance(each, TokenEvent)] for steps in (actual, expected)]
    assert tokens[0] == tokens[1]
    assert max(len(token.experts) for token in tokens[0]) == 2
    if mode == "replace":
        whole = steered(world.language_model, run, edits=edits, mode=mode)
        assert [each.kl for each in whole if isinstance(each, TokenEvent)] != [each.kl for each in tokens[0]]


def test_rows_with_different_k_share_a_batch(world: World) -> None:
    from mxd.trainer.inference.steering import Steering

    run = make_run(world)
    edits = (Edit(expert=3, mode="scale", strength=6),)
    sampling = Sampling(max_tokens=10, temperature=1.0)
    configs = [SteeringConfig(prompt=PROMPT, edits=edits, mode="replace", k=k, sampling=sampling) for k in (1, None, 2)]
    together = [Steering.prepare(world.language_model, [run], config) for config in configs]
    batch = RowBatch(world.language_model)
    steps: list[list[Any]] = [list(steering.join(batch)) for steering in together]
    while not all(steering.finished for steering in together):
        step = batch.step()
        for steering, events in zip(together, steps, strict=True):
            if not steering.finished:
                events.extend(steering.advance(batch, step))
    for config, events in zip(configs, steps, strict=True):
        alone = list(steer(world.language_model, run, config))
        for arm in ("baseline", "steered"):
            assert ids_of(events, arm) == ids_of(alone, arm)
            assert divergences(events, arm) == pytest.approx(divergences(alone, arm), abs=1e-5)
