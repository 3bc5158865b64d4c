"""Steering: exact without edits, comparable token by token, and equal in all architectures."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config import Edit, Method, Sampling, SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import TooLongError, UsageWarning, UserError
from mxd.trainer.inference.edits import EditedBlock, EditPlan, LayerEdits
from mxd.trainer.inference.generation import gumbel_noise, run_alone, sample_tokens
from mxd.trainer.inference.results import DoneEvent, TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.inference.units import NEAREST, all_units, edit_units, median_in_units, random_experts, with_control
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.run import Run
from tests.helpers.databases import made_up_database
from tests.helpers.language_models import tiny_language_model
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, run_of

PROMPT = "the old fox"


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
@pytest.mark.parametrize(("edits", "seed"), [((), 0), ((Edit(expert=3, mode="scale", strength=1),), 1)])
def test_without_effective_edits_both_variants_equal_the_original_model(
    world: World, family: str, edits: tuple[Edit, ...], seed: int
) -> None:
    language_model = tiny_language_model(family)
    steps = steered(language_model, run_of(world), edits=edits, sampling={"seed": seed})
    expected = plain_generation(language_model, Sampling(max_tokens=12, temperature=1.0, seed=seed))
    assert ids_of(steps, "baseline") == ids_of(steps, "steered") == expected
    for step in steps:
        if isinstance(step, TokenEvent):
            assert (step.delta_log_probability, step.kl) == pytest.approx((0, 0), abs=1e-5 if edits else 0)


def test_scope(world: World) -> None:
    run, edits = run_of(world), (Edit(expert=3, mode="add", strength=30),)
    everywhere, generated, prompt = (
        divergences(steered(world.language_model, run, edits=edits, scope=scope), "baseline")
        for scope in ("all", "generated", "prompt")
    )
    # The first token follows the prompt alone, so an edit of generated tokens cannot touch it.
    assert generated[0] == 0 < prompt[0] == pytest.approx(everywhere[0])
    assert all(0 < g != a for g, a in zip(generated[1:], everywhere[1:], strict=True))
    # An edited prompt is still seen through attention.
    assert all(0 < p != a for p, a in zip(prompt[1:], everywhere[1:], strict=True))
    # Positions are those of the prompt, whatever the scope is.
    every, some = (
        divergences(steered(world.language_model, run, edits=edits, scope="generated", positions=chosen), "baseline")
        for chosen in (tuple(range(12)), (1, 4))
    )
    assert every == prompt != some and some[0] > 0


def test_stop_text(world: World) -> None:
    run = run_of(world)
    free = [s for s in steered(world.language_model, run, sampling={"seed": 2}) if isinstance(s, TokenEvent)]
    text = "".join(step.text for step in free if step.variant == "baseline")
    cut = next(index for index, character in enumerate(text) if character.isascii() and character.isprintable())
    steps = steered(world.language_model, run, sampling={"seed": 2, "stop": (text[cut],)})
    assert isinstance(steps[-1], DoneEvent)
    assert steps[-1].baseline_reason == "stop"
    assert len(ids_of(steps, "baseline")) < len(free) / 2 + 1


def test_invalid_requests(world: World) -> None:
    run = run_of(world)
    with pytest.raises(UserError, match="Unknown expert 33"):
        steered(world.language_model, run, edits=(Edit(expert=33, mode="ablate"),))
    with pytest.raises(TooLongError, match="Shorten the text"):
        steered(world.language_model, run, sampling={"max_tokens": 120})


def test_the_steered_variant_alone_is_the_same(world: World) -> None:
    run, edits = run_of(world), (Edit(expert=3, mode="add", strength=8),)
    sampling = Sampling(max_tokens=12, temperature=1.0, samples=2)
    config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling)
    steps = [step for step in steer(world.language_model, run, config) if isinstance(step, TokenEvent)]
    texts = ["".join(s.text for s in steps if (s.variant, s.sample) == ("steered", sample)) for sample in range(2)]
    alone = list(run_alone(world.language_model, Steering.prepare(world.language_model, [run], config).alone()))
    assert texts == ["".join(s.text for s in alone if getattr(s, "sample", None) == sample) for sample in range(2)]


def test_units_are_read_from_the_run(world: World, tmp_path: Path) -> None:
    run = run_of(world)
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
    run, narrow = run_of(world), run_of(world)
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


@pytest.mark.parametrize("method", ["transcoder", "jumprelu-transcoder"])
def test_layers_without_a_dense_output_can_be_edited(method: Method) -> None:
    layer, x_1TI = random_layer(method), torch.randn(1, 6, 12, generator=torch.Generator().manual_seed(0))
    edits = LayerEdits(layer, "residual", EditPlan.from_edits([Edit(expert=4, mode="set", strength=2)], {4: 1.0}, 33))
    block = EditedBlock(1)
    block.add_row(0, edits, [edits.plan] * 6)
    actual = block(x_1TI, lambda: torch.zeros(1, 6, 10))
    routing = layer.route(x_1TI[0])
    live_T = (routing.activations_TK * (routing.indices_TK == 4)).sum(dim=1)
    torch.testing.assert_close(actual[0], (2 - live_T).unsqueeze(1) * layer.table[4])


CONFIG = StrengthSweepConfig(prompt="the", edits=(Edit(expert=2, mode="add"),))


def record(values: np.ndarray, high: float, p99: float = 1.0) -> ExpertRecord:
    histogram = np.histogram(values, bins=64, range=(0, high))[0].tolist()
    return ExpertRecord(histogram=histogram, histogram_high=high, p99=p99)


@given(st.lists(st.floats(0.001, 7.999), min_size=1, max_size=300))
def test_the_median_is_at_most_one_bin_off(values: list[float]) -> None:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    assert low - 8 / 64 <= median_in_units(record(np.array(values), 8.0)) <= high + 8 / 64


def test_medians_are_in_units() -> None:
    values = np.linspace(0.01, 3.99, 1000)
    assert median_in_units(record(values, 4.0, p99=3.9)) == pytest.approx(2 / 3.9, rel=0.02)
    assert median_in_units(ExpertRecord(histogram=[0] * 64, histogram_high=0.0, p99=0.0)) == 0


@pytest.mark.parametrize("count", [1, 20, 99])
def test_random_experts_are_the_nearest_in_density(count: int) -> None:
    density_N = np.random.default_rng(0).integers(0, 30, 80) / 100
    active = [expert for expert in range(80) if density_N[expert] and expert not in (7, 9)]
    nearest = sorted(active, key=lambda expert: (abs(density_N[expert] - density_N[7]), expert))[: max(NEAREST, count)]
    drawn = {seed: random_experts(density_N, 7, count, seed, avoided=[9]) for seed in range(40)}
    assert all(len(set(each)) == min(count, len(active)) for each in drawn.values())
    assert set().union(*drawn.values()) <= set(nearest)
    assert len(set().union(*drawn.values())) > NEAREST / 2
    assert drawn[3] == random_experts(density_N, 7, count, 3, avoided=[9])
    assert random_experts(np.array([0.5, 0.0]), 0) == [], "the other one is dead"


def test_the_control_has_a_similar_density(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with Session(database) as session:
        density = {record.expert: record.density for record in session.scalars(select(ExpertRecord))}
        distance = {expert: abs(value - density[2]) for expert, value in density.items() if value and expert != 2}
        control = with_control(session, CONFIG, "first").control
        assert control is not None
        assert distance[control] <= sorted(distance.values())[NEAREST - 1]
        assert control == with_control(session, CONFIG, "first").control
        assert with_control(session, CONFIG.model_copy(update={"control": 5}), "first").control == 5
        assert with_control(session, CONFIG, "second").control is None, "it has no index"
    database.dispose()


def test_a_unit_is_that_of_the_index_then_that_of_the_folder_then_one(tmp_path: Path) -> None:
    database = made_up_database(tmp_path, f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with Session(database) as session:
        p99 = {record.expert: record.p99 for record in session.scalars(select(ExpertRecord)) if record.p99}
        indexed = min(p99)
        edits = (f"{indexed}:add:1", "second/1:set:2@when:first/2000>0", "second/2:ablate")
        config = SteeringConfig.model_validate({"prompt": "the", "edits": edits})
        folders = {"first": {indexed: 99.0, 2000: 7.0}, "second": {1: 3.0}}
        units = edit_units(config, "first", folders.__getitem__, session)
        assert units == {"first": {indexed: p99[indexed], 2000: 7.0}, "second": {1: 3.0, 2: 1.0}}
        assert edit_units(config, "first", folders.__getitem__)["first"][indexed] == 99.0, "no database"
        with pytest.warns(UsageWarning, match=f"expert {indexed} is unknown"):
            assert edit_units(config, "first", lambda _: {1: 3.0})["first"] == {indexed: 1.0, 2000: 1.0}
        runs = cast(list[Run], [SimpleNamespace(name=name, units=units) for name, units in folders.items()])
        assert all_units(runs, session) == {"first": {**p99, 2000: 7.0}, "second": {1: 3.0}}
        assert all_units(runs) == folders
        tested = SteeringConfig.model_validate({"prompt": "the", "edits": ("1:ablate@when:second/9>0.5",)})
        with pytest.warns(UsageWarning, match="expert 9 is unknown"):
            assert edit_units(tested, "first", lambda _: {})["second"] == {9: 1.0}
    database.dispose()
