"""Settings: defaults that depend on the number of tokens, presets, and the compact text of edits."""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import AutoConfig, AutoModelForCausalLM

from mxd.trainer.config.layer import LayerConfig
from mxd.trainer.config.presets import FOLDER, preset_file, presets, shape_of
from mxd.trainer.config.steering import Condition, Edit, GateTest
from mxd.trainer.config.training import (
    FINETUNE_LEARNING_RATE,
    FinetuneConfig,
    TextConfig,
    TrainConfig,
    default_learning_rate,
)
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.layers.variants import build_layer, matched_num_experts

TEXT = TextConfig(dataset="text.jsonl")


def config(tokens: object, **settings: object) -> TrainConfig:
    values = {"name": "run", "language_model": "model", "layer": 0, "text": TEXT, "tokens": tokens}
    return TrainConfig.model_validate({**values, **settings})


@pytest.mark.parametrize(
    ("tokens", "rate", "batch"),
    [(1000, 3e-3, 512), (4_000_000, 3e-3, 512), (20_000_000, 9.7e-4, 2048), (480_000_000, 1.1e-4, 2048)],
)
def test_short_runs_take_small_fast_steps_and_the_papers_480m_tokens_nearly_its_rate(
    tokens: int, rate: float, batch: int
) -> None:
    optimizer = config(tokens).optimizer
    assert (optimizer.learning_rate, optimizer.batch_tokens) == (default_learning_rate(tokens), batch)
    assert optimizer.learning_rate == rate
    assert config(tokens, optimizer={"learning_rate": 1e-3}).optimizer.batch_tokens == batch
    assert config(tokens, optimizer={"batch_tokens": 96}).optimizer.batch_tokens == 96


def test_a_given_rate_is_kept_and_a_stored_one_survives_other_defaults() -> None:
    assert config("20M", optimizer={"learning_rate": 1e-2}).optimizer.learning_rate == 1e-2
    stored = config("20M").model_dump()
    assert TrainConfig.model_validate({**stored, "tokens": 40_000_000}).optimizer.learning_rate == 9.7e-4


@pytest.mark.parametrize("optimizer", [{}, {"batch_tokens": 8}])
def test_fine_tuning_has_its_own_default_learning_rate(optimizer: dict[str, int]) -> None:
    chosen = FinetuneConfig.model_validate({"text": TEXT, "tokens": "1M", "optimizer": optimizer})
    assert chosen.optimizer.learning_rate == FINETUNE_LEARNING_RATE
    assert chosen.optimizer.batch_tokens == optimizer.get("batch_tokens", 2048)


BILLIONS = {
    "gpt2": 0.124,
    "pythia-410m": 0.405,
    "pythia-1.4b": 1.415,
    "llama-3.2-1b": 1.236,
    "llama-3.2-3b": 3.213,
    "llama-3.1-8b": 8.030,
    "llama-3.1-70b": 70.554,
    "qwen3-1.7b": 1.721,
    "qwen3-8b": 8.191,
    "qwen3-32b": 32.762,
    "gemma-3-1b": 1.000,
    "olmo-2-1b": 1.485,
    "mistral-7b": 7.248,
}
"""Published number of parameters, in billions."""

PAPERS = {"gpt2": 21_490, "pythia-410m": 28_658, "pythia-1.4b": 57_330, "llama-3.2-3b": 86_015}
"""Number of experts in the paper."""


def test_every_preset_is_checked_against_an_architecture() -> None:
    assert {preset.name for preset in presets()} == set(BILLIONS)
    assert preset_file("gpt2") == FOLDER / "gpt2.toml"
    assert preset_file("gpt3") is None


@pytest.mark.parametrize("preset", presets(), ids=lambda preset: preset.name)
def test_the_layer_exists_at_full_size(preset: Any) -> None:
    with torch.device("meta"):
        outline = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape_of(preset.name)))
        architecture = Architecture(outline, preset.language_model)
        shape = architecture.mlp_shape(preset.layer)
        config = LayerConfig(num_experts=preset.num_experts or 1, k=preset.k, **asdict(shape))
        num_experts = preset.num_experts or matched_num_experts(config, shape.input_width)
        layer = build_layer(config.model_copy(update={"num_experts": num_experts}))
    count = sum(parameter.numel() for parameter in outline.parameters())
    assert count / 1e9 == pytest.approx(BILLIONS[preset.name], abs=0.0006)
    transcoder = 32 * shape.input_width * (shape.input_width + 1 + shape.output_width) + shape.output_width
    assert 0.3 < preset.layer / len(architecture.blocks) < 0.7
    assert layer.num_parameters < 1.001 * transcoder
    assert num_experts == PAPERS.get(preset.name, num_experts)
    assert preset.num_experts is not None or layer.num_parameters > 0.999 * transcoder


EXPERTS, NAMES = st.integers(0, 10**6), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
STRENGTHS = st.floats(-1000, 1000)
COUNTS = st.none() | st.integers(1, 4096)
LEVELS = st.just("median") | STRENGTHS


@st.composite
def gate_tests(draw: st.DrawFn) -> GateTest:
    name = draw(st.sampled_from(["above", "at_most"]))
    return GateTest.model_validate({"expert": draw(EXPERTS), "run": draw(st.none() | NAMES), name: draw(LEVELS)})


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    mode = draw(st.sampled_from(["scale", "add", "set", "ablate"]))
    scope = draw(st.sampled_from(["all", "generated", "prompt"]))
    ending = {} if scope == "prompt" else {name: draw(COUNTS) for name in ("first", "ramp", "fade")}
    until = None if scope == "prompt" else draw(st.none() | st.text(min_size=1, max_size=200))
    tests = tuple(draw(st.lists(gate_tests(), max_size=4)))
    when = Condition.model_validate({"gates": tests, "scope": scope, "until": until, **ending})
    strength = 1.0 if mode == "ablate" else draw(STRENGTHS)
    return Edit.model_validate(
        {
            "expert": draw(EXPERTS),
            "mode": mode,
            "strength": strength,
            "run": draw(st.none() | NAMES),
            "when": None if when == Condition() else when,
        }
    )


@given(edits())
def test_parsing_inverts_formatting(edit: Edit) -> None:
    assert Edit.model_validate(str(edit)) == edit


@given(st.text(max_size=60) | st.from_regex(r"\d{1,3}:(add|set):\d(@(when:\d+[<>]=?\w+|first:\d+|until:.{0,5}|\w+))*"))
def test_any_text_is_an_edit_or_a_validation_error(text: str) -> None:
    try:
        edit = Edit.model_validate(text)
    except ValidationError:
        return
    assert Edit.model_validate(str(edit)) == edit


def test_an_unquoted_stop_text_is_the_rest_of_the_edit() -> None:
    edit = Edit.model_validate("12:add:4@first:20@until:. @x")
    assert edit.when == Condition(first=20, until=". @x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Write EXPERT:scale:FACTOR"),
        ("12", "Write EXPERT:scale:FACTOR"),
        ("12:add:4@fist:3", "Unknown clause: '@fist:3'"),
        ("12:add:4@when:3", "Write EXPERT>UNITS"),
        ("12:add:4@first:3@first:4", "appears twice"),
        ("12:add:4@prompt@first:4", "scope cannot be prompt"),
        ("12:add:4@when:3>often", "median"),
    ],
)
def test_errors_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Edit.model_validate(text)


def test_a_gate_test_has_one_level() -> None:
    for levels in ({}, {"above": 0, "at_most": 1}):
        with pytest.raises(ValidationError, match="either above or at_most"):
            GateTest.model_validate({"expert": 1, **levels})
