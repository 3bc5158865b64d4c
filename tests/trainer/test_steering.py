"""Steering: exact where nothing is edited, comparable token by token, and the same in any architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.language_models import tiny_language_model
from tests.layers import random_layer
from tests.runs import World
from trainer.config import Edit, Sampling, SteeringConfig, TrainConfig
from trainer.errors import TooLongError, UserError
from trainer.generation import RowBatch, Step
from trainer.language_model import LanguageModel
from trainer.routing import prompt_ids
from trainer.run import Run
from trainer.sampling import choose, gumbel_noise
from trainer.steering import Done, NewToken, Started, generate, steer

PROMPT = "the old fox"


def make_run(world: World, seed: int = 0) -> Run:
    """A run with a random layer for layer 1, fitted to nothing."""
    run = Run(world.data, TrainConfig.model_validate(world.config().model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=seed)
    return run


def steered(language_model: LanguageModel, run: Run, **settings: Any) -> list[Any]:
    sampling = Sampling.model_validate({"max_tokens": 12, "temperature": 1.0, **settings.pop("sampling", {})})
    return list(steer(language_model, run, SteeringConfig(prompt=PROMPT, sampling=sampling, **settings)))


def ids_of(steps: list[Any], arm: str) -> list[int]:
    return [step.id for step in steps if isinstance(step, NewToken) and step.arm == arm]


def divergences(steps: list[Any], arm: str) -> list[float]:
    return [step.kl for step in steps if isinstance(step, NewToken) and step.arm == arm]


def plain_generation(language_model: LanguageModel, sampling: Sampling) -> list[int]:
    """What the language model does without us: whole forward passes, two rows, no cache."""
    ids = prompt_ids(language_model, PROMPT)
    start = len(ids)
    for step in range(sampling.max_tokens):
        logits_RV = language_model.logits(torch.tensor([ids, ids]))[:, -1]
        noise_RV = gumbel_noise(sampling.seed, step, logits_RV.shape[1]).expand(2, -1)
        ids.append(choose(logits_RV, [set(ids)] * 2, [sampling] * 2, noise_RV)[0])
        if ids[-1] == 0:
            break
    return ids[start:]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "opt", "gemma2", "falcon"])
@pytest.mark.parametrize("seed", range(4))
def test_without_edits_both_arms_are_the_untouched_language_model(world: World, family: str, seed: int) -> None:
    language_model = tiny_language_model(family)
    steps = steered(language_model, make_run(world), sampling={"seed": seed})
    wanted = plain_generation(language_model, Sampling(max_tokens=12, temperature=1.0, seed=seed))
    assert ids_of(steps, "default") == ids_of(steps, "steered") == wanted
    for step in steps:
        if isinstance(step, NewToken):
            assert (step.delta_log_probability, step.kl) == (0.0, 0.0)


def test_the_default_arm_does_not_feel_the_edits(world: World) -> None:
    run = make_run(world)
    plain = steered(world.language_model, run)
    edited = steered(world.language_model, run, edits=(Edit(expert=3, mode="add", strength=30),))
    assert ids_of(plain, "default") == ids_of(edited, "default")
    assert ids_of(edited, "steered") != ids_of(edited, "default")


@pytest.mark.parametrize("apply", ["on-top", "replace"])
def test_differences_are_of_the_same_text(world: World, apply: str) -> None:
    """Each token's Δ log p is what two plain forward passes over that arm's own text give."""
    run = make_run(world)
    edits = (Edit(expert=3, mode="add", strength=5), Edit(expert=7, mode="scale", strength=3))
    steps = steered(world.language_model, run, edits=edits, apply=apply)
    for arm in ("default", "steered"):
        tokens = [step for step in steps if isinstance(step, NewToken) and step.arm == arm]
        ids = prompt_ids(world.language_model, PROMPT) + [token.id for token in tokens]
        without, with_edits = (log_probabilities(world, run, ids, e, apply) for e in ((), edits))
        start = len(ids) - len(tokens)
        for place, token in enumerate(tokens, start=start - 1):
            own, other = (with_edits, without) if arm == "steered" else (without, with_edits)
            change = (with_edits[place] - without[place])[token.id].item()
            assert token.delta_log_probability == pytest.approx(change, abs=1e-3)
            assert token.probability == pytest.approx(own[place, token.id].exp().item(), rel=1e-3)
            kl = (own[place].exp() * (own[place] - other[place])).sum().item()
            assert token.kl == pytest.approx(kl, abs=1e-3)
            assert token.alternatives[0].id == own[place].argmax()
            assert token.other_alternatives[0].id == other[place].argmax()


def log_probabilities(world: World, run: Run, ids: list[int], edits: tuple[Edit, ...], apply: str) -> torch.Tensor:
    def answer(x: torch.Tensor, mlp: Any) -> torch.Tensor:
        z_TI = x.reshape(-1, 16)
        output = mlp() if apply == "on-top" else run.layer(z_TI).output_TO.reshape(x.shape)
        routing = run.layer.route(z_TI)
        for edit in edits:
            live_T = (routing.coefficients_TK * (routing.indices_TK == edit.expert)).sum(1)
            new_T = live_T + edit.strength if edit.mode == "add" else live_T * edit.strength
            own_TO = run.layer.encode(z_TI) @ run.layer.expert_matrix(edit.expert)  # type: ignore[operator]
            output = output + ((new_T - live_T).unsqueeze(1) * own_TO).reshape(x.shape)
        return torch.as_tensor(output)

    with world.language_model.stand_in({1: answer}):
        log_p_TV = world.language_model.logits(torch.tensor([ids]))[0].log_softmax(-1)
        return log_p_TV


def test_scope(world: World) -> None:
    run, edits = make_run(world), (Edit(expert=3, mode="add", strength=30),)
    everywhere, generated, prompt = (
        divergences(steered(world.language_model, run, edits=edits, scope=scope), "default")
        for scope in ("all", "generated", "prompt")
    )
    # The first token follows the prompt alone, so an edit of generated tokens cannot touch it.
    assert generated[0] == 0 < prompt[0] == pytest.approx(everywhere[0])
    assert all(0 < g != a for g, a in zip(generated[1:], everywhere[1:], strict=True))
    # An edited prompt is still seen through attention.
    assert all(0 < p != a for p, a in zip(prompt[1:], everywhere[1:], strict=True))


def test_the_order_of_events(world: World) -> None:
    steps = steered(world.language_model, make_run(world), edits=(Edit(expert=1, mode="off"),))
    assert isinstance(steps[0], Started)
    assert steps[0].prompt_tokens == len(PROMPT) + 1
    done = steps[-1]
    assert isinstance(done, Done)
    assert done.tokens == len(steps) - 2
    for arm in ("default", "steered"):
        positions = [step.position for step in steps[1:-1] if step.arm == arm]
        assert positions == list(range(len(positions)))


def test_texts_add_up(world: World) -> None:
    steps = steered(world.language_model, make_run(world), sampling={"max_tokens": 40, "seed": 5})
    tokens = [step for step in steps if isinstance(step, NewToken) and step.arm == "default"]
    whole = world.language_model.tokenizer.decode([token.id for token in tokens])
    assert isinstance(whole, str)
    assert whole.startswith("".join(token.text for token in tokens))


def test_stop_text(world: World) -> None:
    run = make_run(world)
    free = [s for s in steered(world.language_model, run, sampling={"seed": 2}) if isinstance(s, NewToken)]
    text = "".join(step.text for step in free if step.arm == "default")
    cut = next(place for place, character in enumerate(text) if character.isascii() and character.isprintable())
    steps = steered(world.language_model, run, sampling={"seed": 2, "stop": (text[cut],)})
    assert isinstance(steps[-1], Done)
    assert steps[-1].default_reason == "stop"
    assert len(ids_of(steps, "default")) < len(free) / 2 + 1


def test_refusals(world: World) -> None:
    run = make_run(world)
    with pytest.raises(UserError, match="no expert 33"):
        steered(world.language_model, run, edits=(Edit(expert=33, mode="off"),))
    with pytest.raises(TooLongError, match="shorten"):
        steered(world.language_model, run, sampling={"max_tokens": 120})


def test_arms_share_rows_until_they_differ(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> Step:
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


def test_generate_is_the_steered_arm(world: World) -> None:
    run, edits = make_run(world), (Edit(expert=3, mode="add", strength=8),)
    sampling = Sampling(max_tokens=12, temperature=1.0, samples=2)
    config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling)
    steps = [step for step in steer(world.language_model, run, config) if isinstance(step, NewToken)]
    texts = ["".join(s.text for s in steps if (s.arm, s.sample) == ("steered", sample)) for sample in range(2)]
    assert generate(world.language_model, run, config) == tuple(texts)


def test_units_are_those_saved_with_the_run(world: World, tmp_path: Path) -> None:
    run = make_run(world)
    saved = Run(tmp_path, run.config)
    saved.__dict__["layer"] = run.layer
    saved.write_units({3: 4.0})
    edits = (Edit(expert=3, mode="add", strength=2),)
    by_unit = steered(world.language_model, saved, edits=edits)
    by_hand = steered(world.language_model, run, edits=(Edit(expert=3, mode="add", strength=8),))
    assert divergences(by_unit, "default") == divergences(by_hand, "default")
    (tmp_path / "units.json").write_text("[1, 2]")
    del saved.__dict__["units"]
    with pytest.raises(UserError, match="damaged"):
        steered(world.language_model, saved, edits=edits)


@pytest.mark.parametrize("apply", ["on-top", "replace"])
def test_with_fewer_experts_it_is_the_layer_with_so_many(world: World, apply: str) -> None:
    run, narrow = make_run(world), make_run(world)
    narrow.__dict__["layer"] = run.layer.at_k(2)
    edits = (Edit(expert=3, mode="add", strength=5), Edit(expert=7, mode="scale", strength=3))
    found = steered(world.language_model, run, edits=edits, apply=apply, k=2)
    wanted = steered(world.language_model, narrow, edits=edits, apply=apply)
    tokens = [[it for it in steps if isinstance(it, NewToken)] for steps in (found, wanted)]
    assert tokens[0] == tokens[1]
    assert max(len(token.experts) for token in tokens[0]) == 2
    if apply == "replace":
        whole = steered(world.language_model, run, edits=edits, apply=apply)
        assert [it.kl for it in whole if isinstance(it, NewToken)] != [it.kl for it in tokens[0]]


def test_more_experts_than_the_run_has_are_refused(world: World) -> None:
    with pytest.raises(UserError, match="small: A token has 5 experts at most, and 6 are asked for"):
        steered(world.language_model, make_run(world), k=6)


def test_rows_with_different_numbers_of_experts_share_a_batch(world: World) -> None:
    from trainer.steering import Steering

    run = make_run(world)
    edits = (Edit(expert=3, mode="scale", strength=6),)
    sampling = Sampling(max_tokens=10, temperature=1.0)
    configs = [
        SteeringConfig(prompt=PROMPT, edits=edits, apply="replace", k=k, sampling=sampling) for k in (1, None, 2)
    ]
    units = {run.name: run.units}
    together = [Steering.prepare(world.language_model, [run], config, units) for config in configs]
    batch = RowBatch(world.language_model)
    steps: list[list[Any]] = [list(steering.join(batch)) for steering in together]
    while not all(steering.finished for steering in together):
        step = batch.step()
        for steering, told in zip(together, steps, strict=True):
            if not steering.finished:
                told.extend(steering.advance(batch, step))
    for config, told in zip(configs, steps, strict=True):
        alone = list(steer(world.language_model, run, config, units))
        for arm in ("default", "steered"):
            assert ids_of(told, arm) == ids_of(alone, arm)
            assert divergences(told, arm) == pytest.approx(divergences(alone, arm), abs=1e-5)
