"""Steering equals a reference that evaluates each condition token by token: alone, in batches and in sweeps."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config.layer import Method
from mxd.trainer.config.steering import (
    Condition,
    Edit,
    GateTest,
    Sampling,
    SteeringConfig,
    SteeringMode,
    StrengthSweepConfig,
)
from mxd.trainer.errors import UsageWarning, UserError
from mxd.trainer.inference.edits import EditedBlock, EditPlan, LayerEdits
from mxd.trainer.inference.generation import RowBatch, StepOutput, gumbel_noise, run_alone, sample_tokens
from mxd.trainer.inference.results import (
    ConceptScore,
    DoneEvent,
    SteeredGeneration,
    SteeringFigures,
    StrengthSweepDoneEvent,
    StrengthSweepPoint,
    StrengthSweepProgressEvent,
    StrengthSweepStep,
    TokenEvent,
    Variant,
)
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.inference.strength_sweep import (
    Concept,
    StrengthSweep,
    at_strength,
    is_unclear,
    next_strengths,
    suggest_strength,
    sweep_verdict,
)
from mxd.trainer.inference.units import NEAREST, all_units, edit_units, median_in_units, random_experts, with_control
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.run import Run
from tests.helpers.databases import made_up_database
from tests.helpers.runs import World, random_layer, run_of, tiny_language_model
from tests.trainer.inference.test_generation import together, tokens

PROMPT = "the old fox"


def steered(language_model: LanguageModel, run: Run, **settings: Any) -> list[Any]:
    sampling = Sampling.model_validate({"max_tokens": 12, "temperature": 1.0, **settings.pop("sampling", {})})
    return list(steer(language_model, run, SteeringConfig(prompt=PROMPT, sampling=sampling, **settings)))


def written(steps: Iterable[object], variant: Variant | None = None, sample: int | None = None) -> list[TokenEvent]:
    """New tokens, of one variant or of both, and of one sample or of all."""
    events = [step for step in steps if isinstance(step, TokenEvent)]
    return [it for it in events if variant in (None, it.variant) and sample in (None, it.sample)]


def divergences(steps: Iterable[object], variant: Variant = "baseline") -> list[float]:
    return [token.kl for token in written(steps, variant)]


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
    for variant in get_args(Variant):
        assert [token.id for token in written(steps, variant)] == expected
    for token in written(steps):
        assert (token.delta_log_probability, token.kl) == pytest.approx((0, 0), abs=1e-5 if edits else 0)


def test_scope(world: World) -> None:
    run, edits = run_of(world), (Edit(expert=3, mode="add", strength=30),)
    everywhere, generated, prompt = (
        divergences(steered(world.language_model, run, edits=edits, scope=scope))
        for scope in ("all", "generated", "prompt")
    )
    # The first token follows the prompt alone, so an edit of generated tokens cannot touch it.
    assert generated[0] == 0 < prompt[0] == pytest.approx(everywhere[0])
    assert all(0 < g != a for g, a in zip(generated[1:], everywhere[1:], strict=True))
    # An edited prompt is still seen through attention.
    assert all(0 < p != a for p, a in zip(prompt[1:], everywhere[1:], strict=True))
    # Positions are those of the prompt, whatever the scope is.
    every, some = (
        divergences(steered(world.language_model, run, edits=edits, scope="generated", positions=chosen))
        for chosen in (tuple(range(12)), (1, 4))
    )
    assert every == prompt != some and some[0] > 0


def test_stop_text(world: World) -> None:
    run = run_of(world)
    free = written(steered(world.language_model, run, sampling={"seed": 2}), "baseline")
    text = "".join(token.text for token in free)
    cut = next(index for index, character in enumerate(text) if character.isascii() and character.isprintable())
    steps = steered(world.language_model, run, sampling={"seed": 2, "stop": (text[cut],)})
    assert isinstance(steps[-1], DoneEvent)
    assert steps[-1].baseline_reason == "stop"
    assert len(written(steps, "baseline")) < len(free) + 1


def test_the_steered_variant_alone_is_the_same(world: World) -> None:
    run, edits = run_of(world), (Edit(expert=3, mode="add", strength=8),)
    sampling = Sampling(max_tokens=12, temperature=1.0, samples=2)
    config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling)
    steps = list(steer(world.language_model, run, config))
    alone = list(run_alone(world.language_model, Steering.prepare(world.language_model, [run], config).alone()))
    samples = [written(steps, "steered", sample) for sample in range(2)]
    for sample, steered_tokens in enumerate(samples):
        assert [it.text for it in steered_tokens] == [it.text for it in written(alone, sample=sample)]
    done, done_alone = steps[-1], alone[-1]
    assert isinstance(done, DoneEvent) and done.figures is not None
    assert isinstance(done_alone, DoneEvent) and done_alone.figures is None, "it has no baseline"
    first, second = (fmean(token.kl for token in sample) for sample in samples)
    assert done.figures.kl_error == pytest.approx(abs(first - second) / 2)
    # Losses without edits: the change of a steered token is edited minus original.
    loss = fmean(token.delta_log_probability - math.log(token.probability) for token in written(steps, "steered"))
    own_loss = fmean(-math.log(token.probability) for token in written(steps, "baseline"))
    assert done.figures.perplexity_ratio == pytest.approx(math.exp(loss - own_loss))


def test_nonsense_is_named() -> None:
    def flaw(ids: Sequence[int], probability: float) -> str:
        texts: dict[Variant, tuple[Sequence[int], float]] = {
            "baseline": (range(40), 0.5),
            "steered": (ids, probability),
        }
        figures = SteeringFigures.of_tokens(
            TokenEvent(variant, 0, at, token, "a", p, 0.0, 0.1, (), (), (), None)
            for variant, (chosen, p) in texts.items()
            for at, token in enumerate(chosen)
        )
        assert figures is not None
        return figures.flaws[0]

    assert flaw(range(40), 0.3) == ""
    assert "perplexity × 2.5 of the baseline's" in flaw(range(40), 0.2)
    assert "95% of its sequences of 4 tokens are repetitions (baseline 0%)" in flaw([1, 2] * 20, 0.5)


def test_units_are_read_from_the_run(world: World, tmp_path: Path) -> None:
    run = run_of(world)
    saved = Run(tmp_path, run.config)
    saved.__dict__["layer"] = run.layer
    saved.write_units({3: 4.0})
    edits = (Edit(expert=3, mode="add", strength=2),)
    by_unit = steered(world.language_model, saved, edits=edits)
    by_hand = steered(world.language_model, run, edits=(Edit(expert=3, mode="add", strength=8),))
    assert divergences(by_unit) == divergences(by_hand)
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
    assert written(actual) == written(expected)
    assert max(len(token.experts) for token in written(actual)) == 2
    if mode == "replace":
        whole = steered(world.language_model, run, edits=edits, mode=mode)
        assert divergences(whole) != divergences(actual)


@pytest.mark.parametrize("method", ["transcoder", "jumprelu-transcoder"])
def test_layers_without_a_dense_output_can_be_edited(method: Method) -> None:
    layer, x_1TI = random_layer(method), torch.randn(1, 6, 12, generator=torch.Generator().manual_seed(0))
    edits = LayerEdits(layer, "residual", EditPlan((Edit(expert=4, mode="set", strength=2),), {4: 1.0}))
    block = EditedBlock(1)
    block.add_row(0, edits, [edits.plan] * 6)
    actual = block(x_1TI, lambda: torch.zeros(1, 6, 10))
    routing = layer.route(x_1TI[0])
    live_T = (routing.activations_TK * (routing.indices_TK == 4)).sum(dim=1)
    torch.testing.assert_close(actual[0], (2 - live_T).unsqueeze(1) * layer.table[4])


CONFIG = StrengthSweepConfig(prompt="the", edits=(Edit(expert=2, mode="add"),))


@given(st.lists(st.floats(0.001, 7.999), min_size=1, max_size=300), st.floats(0.5, 8))
def test_the_median_is_in_units_and_at_most_one_bin_off(values: list[float], unit: float) -> None:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    histogram = np.histogram(values, bins=64, range=(0, 8))[0].tolist()
    median = median_in_units(ExpertRecord(histogram=histogram, histogram_high=8.0, p99=unit))
    assert low - 8 / 64 <= median * unit <= high + 8 / 64
    assert median_in_units(ExpertRecord(histogram=[0] * 64, histogram_high=0.0, p99=0.0)) == 0


@pytest.mark.parametrize("count", [1, 20, 99])
def test_random_experts_are_the_nearest_in_density(count: int) -> None:
    density_N = np.random.default_rng(0).integers(0, 30, 80) / 100
    active = [expert for expert in range(80) if density_N[expert] and expert not in (7, 9)]
    by_distance = sorted(active, key=lambda expert: (abs(density_N[expert] - density_N[7]), expert))
    nearest = by_distance[: max(NEAREST, 2 * count)]
    drawn = {seed: random_experts(density_N, 7, count, seed, avoided=[9]) for seed in range(40)}
    assert all(len(set(each)) == min(count, len(active)) for each in drawn.values())
    assert set().union(*drawn.values()) <= set(nearest)
    assert len(set().union(*drawn.values())) > NEAREST / 2
    assert drawn[3] == random_experts(density_N, 7, count, 3, avoided=[9])
    assert random_experts(np.array([0.5, 0.0]), 0) == [], "the other one is dead"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A database in which the run ``first`` has an index and ``second`` has none."""
    database = made_up_database(tmp_path, f"sqlite:///{tmp_path / 'mxd.sqlite'}")
    with Session(database) as session:
        yield session
    database.dispose()


def test_the_control_has_a_similar_density(session: Session) -> None:
    density = {record.expert: record.density for record in session.scalars(select(ExpertRecord))}
    distance = {expert: abs(value - density[2]) for expert, value in density.items() if value and expert != 2}
    control = with_control(session, CONFIG, "first").control
    assert control is not None
    assert distance[control] <= sorted(distance.values())[NEAREST - 1]
    assert control == with_control(session, CONFIG, "first").control
    assert with_control(session, CONFIG.model_copy(update={"control": 5}), "first").control == 5
    assert with_control(session, CONFIG, "second").control is None, "it has no index"


def test_a_unit_is_that_of_the_index_then_that_of_the_folder_then_one(session: Session) -> None:
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


UNITS = {"one": dict.fromkeys(range(33), 1.0) | {3: 0.5, 7: 0.25}, "two": dict.fromkeys(range(33), 1.0) | {3: 2.0}}
Hook = Callable[[torch.Tensor, Any], torch.Tensor]


@pytest.fixture
def runs(world: World) -> list[Run]:
    """Runs of layers 1 and 2."""
    return [run_of(world, "one", 1), run_of(world, "two", 2)]


class Reference:
    """Full forward passes over a finished text, with every condition evaluated token by token in Python."""

    def __init__(self, world: World, runs: list[Run], edits: Sequence[Edit], ids: list[int], prompt: int) -> None:
        self.world, self.runs, self.edits, self.ids, self.prompt = world, runs, edits, ids, prompt
        self.is_replaced = False
        self.activations: dict[str, torch.Tensor] = {}

    def log_probabilities(self, mode: SteeringMode = "residual") -> torch.Tensor:
        """[T, V]."""
        self.is_replaced = mode == "replace"
        with self.world.language_model.replace_mlps({run.config.layer: self._hook(run) for run in self.runs}):
            log_p_TV = self.world.language_model.logits(torch.tensor([self.ids]))[0].log_softmax(-1)
        return log_p_TV

    def _hook(self, run: Run) -> Hook:
        def edited(x_1TI: torch.Tensor, mlp: Any) -> torch.Tensor:
            x_TI = x_1TI.reshape(-1, 16)
            output_1TO = run.layer(x_TI).output_TO.unsqueeze(0) if self.is_replaced else mlp()
            live_TN = torch.zeros(len(x_TI), 33)
            routing = run.layer.route(x_TI)
            self.activations[run.name] = live_TN.scatter_add_(1, routing.indices_TK, routing.activations_TK)
            for position in range(len(x_TI)):
                for expert in range(33):
                    change = self._value(run.name, expert, position) - float(live_TN[position, expert])
                    if change:
                        own = run.layer.encode(x_TI[position]) @ run.layer.expert_matrix(expert)  # type: ignore[operator]
                        output_1TO[0, position] += change * own
            return torch.as_tensor(output_1TO)

        return edited

    def _value(self, run: str, expert: int, position: int) -> float:
        value = float(self.activations[run][position, expert])
        for edit in self.edits:
            if (edit.run or "one") != run or edit.expert != expert or not self._holds(edit, position):
                continue
            unit = UNITS[run][expert]
            full = {
                "add": value + edit.strength * unit,
                "set": edit.strength * unit,
                "scale": value * edit.strength,
                "ablate": 0.0,
            }[edit.mode]
            value += self._share(edit.when, position) * (full - value)
        return value

    def _holds(self, edit: Edit, position: int) -> bool:
        when, number = edit.when or Condition(), position - self.prompt + 1
        text = self.world.language_model.tokenizer.decode(self.ids[self.prompt : position + 1])
        return (
            all(self._gate_holds(test, edit.run or "one", position) for test in when.gates)
            and not (when.scope == "prompt" and number > 0)
            and not (when.scope == "generated" and number <= 0)
            and not (when.first is not None and (number <= 0 or number > when.first))
            and not (when.until is not None and when.until in str(text))
        )

    def _gate_holds(self, test: GateTest, edited: str, position: int) -> bool:
        run, level = test.run or edited, test.level
        assert isinstance(level, float)
        activation = float(self.activations[run][position, test.expert]) / UNITS[run][test.expert]
        return activation > level if test.above is not None else activation <= level

    def _share(self, when: Condition | None, position: int) -> float:
        number, share = position - self.prompt + 1, 1.0
        if when is not None and when.ramp is not None:
            share *= min(1.0, max(0, number) / when.ramp)
        if when is not None and when.fade is not None:
            share *= max(0.0, 1 - max(0, number - 1) / when.fade)
        return share


def check(
    world: World, runs: list[Run], edits: Sequence[Edit], seed: int = 0, mode: SteeringMode = "residual"
) -> list[float]:
    """Compare every new token of both variants with the reference; return the KL divergences of the steered text."""
    sampling = Sampling(max_tokens=10, temperature=1.0, seed=seed)
    config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling, mode=mode)
    steps = list(steer(world.language_model, runs, config, UNITS))
    prompt = prompt_ids(world.language_model, PROMPT)
    for variant in get_args(Variant):
        new = written(steps, variant)
        ids = prompt + [token.id for token in new]
        without_TV, with_TV = (
            Reference(world, runs, each, ids, len(prompt)).log_probabilities(mode) for each in ((), edits)
        )
        own_TV, other_TV = (with_TV, without_TV) if variant == "steered" else (without_TV, with_TV)
        for place, token in enumerate(new, start=len(prompt) - 1):
            own_V, other_V = own_TV[place], other_TV[place]
            change = float(with_TV[place, token.id] - without_TV[place, token.id])
            assert token.delta_log_probability == pytest.approx(change, abs=1e-3)
            assert token.probability == pytest.approx(float(own_V[token.id].exp()), rel=1e-3)
            assert token.kl == pytest.approx(float((own_V.exp() * (own_V - other_V)).sum()), abs=1e-3)
            likeliest = [int(log_p_V.argmax()) for log_p_V in (own_V, other_V)]
            assert [token.alternatives[0].id, token.other_alternatives[0].id] == likeliest
    return divergences(steps, "steered")


@pytest.mark.parametrize(
    "edit",
    [
        "3:add:8@generated",
        "3:add:8@prompt",
        "3:add:8@first:3",
        "3:set:8@ramp:4",
        "3:scale:-9@fade:5",
        "7:add:6@when:3>0",
        "7:add:6@when:3<=0.4@when:9<=0",
        "two/3:set:3@when:one/7<=0@first:6@ramp:2",
        "two/5:add:4@when:3<=0.2@fade:3@generated",
        "3:add:2 3:scale:3 7:ablate 3:add:-4@first:5 two/3:set:2",
    ],
)
@pytest.mark.parametrize("mode", ["residual", "replace"])
def test_each_clause_equals_the_reference(world: World, runs: list[Run], edit: str, mode: SteeringMode) -> None:
    """Edits of one expert are composed in their order."""
    assert any(check(world, runs, [Edit.model_validate(each) for each in edit.split()], mode=mode))


def test_a_condition_reads_an_earlier_run_that_is_named_last(world: World, runs: list[Run]) -> None:
    assert any(check(world, runs[::-1], [Edit.model_validate("two/5:add:6@when:one/7<=0")]))


def test_an_edit_ends_on_the_token_that_completes_its_stop_text(world: World, runs: list[Run]) -> None:
    sampling = Sampling(max_tokens=10, temperature=1.0, seed=1)
    steps = steer(world.language_model, runs, SteeringConfig(prompt=PROMPT, sampling=sampling))
    text = SteeredGeneration.collect("", PROMPT, steps).text("baseline")
    stop = next(one for one in text[1:] if one.isascii())  # an incomplete one is shown as another until it is complete
    ended = check(world, runs, [Edit.model_validate(f"3:add:0.3@until:{stop}")], seed=1)
    assert any(ended)


def test_a_batch_of_plain_and_conditional_edits_equals_each_alone(world: World) -> None:
    language_model, run = tiny_language_model(), run_of(world)
    edits = ["3:add:8", "3:add:8@first:4", "7:set:5@when:3>0", "3:add:8@ramp:6@until:a", "7:ablate@when:3<=0@when:9>0"]
    configs = [
        SteeringConfig.model_validate(
            {"prompt": PROMPT[number:], "edits": [edit], "sampling": {"max_tokens": 9, "temperature": 1, "samples": 2}}
        )
        for number, edit in enumerate(edits)
    ]
    for actual, config in zip(together(language_model, [run] * 5, configs, apart=2), configs, strict=True):
        assert sorted(tokens(actual)) == sorted(tokens(list(steer(language_model, run, config))))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("3:ablate@when:33>0", "experts 0 to 32"),
        ("3:ablate@when:4>median", "median activation of expert 4 of one is unknown"),
        ("3:ablate@when:two/4>0", "is computed later"),
        ("3:ablate@when:three/4>0", "not loaded"),
    ],
)
def test_invalid_gate_tests(world: World, runs: list[Run], edit: str, message: str) -> None:
    config = SteeringConfig.model_validate({"prompt": PROMPT, "edits": [edit]})
    with pytest.raises(UserError, match=message):
        Steering.prepare(world.language_model, runs, config, UNITS)


SAMPLING = Sampling(max_tokens=6, samples=2, temperature=1.0)
EDITS = (Edit(expert=3, mode="scale", strength=2.0), Edit(expert=5, mode="add", strength=9.0))
SWEEP = StrengthSweepConfig(prompt=PROMPT, edits=EDITS, edit=1, strengths=(2.0, 0.0, 1.0), sampling=SAMPLING)


@pytest.fixture
def run(world: World) -> Run:
    return run_of(world, seed=0)


def sweep(world: World, run: Run, config: StrengthSweepConfig) -> list[StrengthSweepStep]:
    return list(run_alone(world.language_model, StrengthSweep.prepare(world.language_model, [run], config)))


def curve_of(steps: Sequence[object]) -> StrengthSweepDoneEvent:
    curve = steps[-1]
    assert isinstance(curve, StrengthSweepDoneEvent)
    return curve


def test_each_strength_equals_steering_alone(world: World, run: Run) -> None:
    steps = sweep(world, run, SWEEP)
    curve = curve_of(steps)
    assert [point.strength for point in curve.points] == [0.0, 1.0, 2.0]
    for point in curve.points:
        alone = list(steer(world.language_model, run, at_strength(SWEEP, point.strength)))
        steered, own = written(alone, "steered"), written(alone, "baseline")
        assert point.text == "".join(token.text for token in steered if token.sample == 0)
        assert curve.baseline_text == "".join(token.text for token in own if token.sample == 0)
        assert point.kl == pytest.approx(fmean(token.kl for token in steered), abs=1e-4)
        assert curve.baseline_loss == pytest.approx(fmean(-math.log(token.probability) for token in own), abs=1e-4)
        losses = [token.delta_log_probability - math.log(token.probability) for token in steered]
        assert point.perplexity_ratio == pytest.approx(math.exp(fmean(losses) - curve.baseline_loss), rel=1e-3)


def test_texts_so_far_appear_strength_by_strength_and_grow_into_the_result(world: World, run: Run) -> None:
    steps = sweep(world, run, SWEEP)
    shown = [step.texts for step in steps if isinstance(step, StrengthSweepProgressEvent)]
    assert [len(texts) for texts in shown[:5]] == [1, 2, 3, 3, 3]
    assert [each.strength for each in shown[-1]] == [0.0, 1.0, 2.0]
    early, *_, last = (step for step in steps if isinstance(step, StrengthSweepProgressEvent))
    result = curve_of(steps)
    assert (early.suggested, last.suggested) == (None, result.suggested)
    assert [each.activation is not None for each in shown[-2]] == [True, True, False]
    assert [(each.activation, each.promoted) for each in shown[-1]] == [
        (each.activation, each.promoted) for each in result.points
    ]
    for point, *growing in zip(result.points, *shown[4:], strict=True):
        assert all(point.text.startswith(each.text) for each in growing)
        assert all(point.control_text.startswith(each.control_text) for each in growing)
        assert (point.kl, point.perplexity_ratio) == (growing[-1].kl, growing[-1].perplexity_ratio)


def test_all_strengths_share_one_batch(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    step = RowBatch.step

    def counted(batch: RowBatch) -> StepOutput:
        sizes.append(len(batch.rows))
        return step(batch)

    monkeypatch.setattr(RowBatch, "step", counted)
    sweep(world, run, SWEEP)
    assert 2 * 2 * 3 <= sizes[0] <= 2 * 2 * (3 + 1)  # the text without edits has rows of its own once it differs
    assert len(sizes) < 6


def test_the_control_is_the_same_edit_of_another_expert(world: World, run: Run) -> None:
    curve = curve_of(sweep(world, run, SWEEP.model_copy(update={"control": 7})))
    assert curve.control == 7
    of_control = StrengthSweepConfig.model_validate(
        {**SWEEP.model_dump(), "edits": [EDITS[0], EDITS[1].model_copy(update={"expert": 7})]}
    )
    others = curve_of(sweep(world, run, of_control)).points
    assert [point.control_text for point in curve.points] == [point.text for point in others]
    neutral = curve.points[0]
    for score in (neutral.activation, neutral.promoted):
        assert (score.steered, score.standard_error) == (score.control, 0)
    assert not neutral.exceeds_control
    assert curve_of(sweep(world, run, SWEEP)).control != EDITS[1].expert


@torch.inference_mode()
def test_activation_is_that_of_routing_the_text(world: World, run: Run) -> None:
    """The original model reads the steered texts; a long batch of them is padded on the right."""
    concept = Concept(world.language_model, run, 5, 2.0, prompt_ids(world.language_model, PROMPT))
    texts = [(7, 8, 9), (4,), (7, 8, 9), *((each, 3) for each in range(20))]
    means = concept.mean_activations(texts)
    assert set(means) == set(texts)
    for text in texts[:3]:
        inputs = world.language_model.mlp_inputs([run.config.layer], torch.tensor([[*concept.prompt, *text]]))
        routing = run.layer.route(inputs[run.config.layer][-len(text) :])
        own = (routing.activations_TK * (routing.indices_TK == 5)).sum(dim=1)
        assert means[text] == pytest.approx(own.mean().item() / 2, abs=1e-5)
    assert any(means.values())


def point(
    strength: float, ratio: float, exceeds: bool, steered: float = 0.0, control: float = 0.0, error: float = 0.0
) -> StrengthSweepPoint:
    """Promoted tokens with this probability, which is above chance, and an activation that is not."""
    promoted = ConceptScore(steered, control, error, max(0.01, 2 * error), exceeds)
    activation = ConceptScore(0.0, 0.0, 0.0, 0.01, False)
    return StrengthSweepPoint(strength, 0.0, ratio, ratio <= 3, "", "", activation, promoted)


def test_suggests_the_smallest_fluent_strength_that_shows_the_concept() -> None:
    points = (point(0, 1, True), point(1, 1.2, False), point(2, 2.9, True), point(3, 2.0, True))
    assert suggest_strength(points, "add") == 2
    assert suggest_strength(points[:2], "add") is None
    assert suggest_strength((point(0, 1, False), point(4, 3.1, True)), "add") is None
    assert suggest_strength(points, "scale") == 2


def test_a_large_difference_with_a_large_error_is_unclear() -> None:
    small, clear = point(1, 1, False, 0.005, error=0.01), point(3, 1, True, 0.2, error=0.04)
    noisy, later = (point(strength, 1, False, 0.06, error=0.04) for strength in (2, 4))
    assert is_unclear((small, noisy, clear), 3, "add")
    assert not is_unclear((small, clear), 3, "add")
    assert not is_unclear((clear, later), 3, "add"), "only a smaller one would be suggested instead"
    assert is_unclear((small,), None, "add")
    assert is_unclear((point(3, 1, True, 0.09, error=0.04),), 3, "add"), "its limit is 0.08"


def test_texts_record_the_probability_of_watched_tokens(world: World, run: Run) -> None:
    config = at_strength(SWEEP, 2.0)
    steering = Steering.prepare(world.language_model, [run], config)
    tokens = written(run_alone(world.language_model, steering))
    token = written(tokens, "steered", sample=0)[0]
    watching = replace(Steering.prepare(world.language_model, [run], config), watched=(token.id,))
    assert [it.id for it in written(run_alone(world.language_model, watching))] == [it.id for it in tokens]
    steered = next(text for text in watching.texts if text.variant == "steered")
    assert steered.watched[0] == pytest.approx(token.probability)
    vocabulary = tuple(range(world.language_model.module.config.vocab_size))
    every = replace(watching, watched=vocabulary)
    list(run_alone(world.language_model, every))
    assert [mass for text in every.texts for mass in text.watched] == pytest.approx([1.0] * len(tokens), abs=1e-4)


def test_the_verdict_names_the_rule_and_its_measure() -> None:
    at = partial(point, exceeds=True, control=0.02, error=0.01)
    points = (at(2, 2, steered=0.07), at(4, 1.5, steered=0.15), at(8, 4, steered=0.3))
    said = sweep_verdict(points, 2, "add")
    assert "+2 is the smallest strength" in said and "the probability of promoted tokens" in said
    assert "It is 7.0 % (control 2.0 %, difference +5.0 ± 2.0), at perplexity × 2.0." in said
    assert "15.0 % at +4, at perplexity × 1.5." in said
    assert "At no other strength" in sweep_verdict(points[:1], 2, "add")
    assert "15.0 % at −4, at perplexity × 1.5." in sweep_verdict((at(-4, 1.5, steered=0.15), points[0]), 2, "add")
    assert "at × 8 (+28.0 ± 2.0 points), where perplexity is × 4.0" in sweep_verdict(points[2:], None, "scale")
    small = (point(1, 1, False, 0.03, 0.02, 0.01), point(2, 1, False, 0.01, 0.02, 0.01))
    assert "the largest difference is +1.0 ± 2.0 points, at +1." in sweep_verdict(small, None, "add")
    weaker = (at(0.5, 1, steered=0.3), point(2, 1, False))
    assert "At no strength" in sweep_verdict(weaker, None, "scale")


def test_the_next_strengths_are_those_before_fluency_ends_or_stronger_ones() -> None:
    points = (point(0, 1, False), point(1, 1, False), point(2, 9, True), point(4, 1, True))
    assert next_strengths(points, "add") == (1.2, 1.4, 1.6, 1.8)
    assert next_strengths(points[:2], "add") == (1.25, 1.5, 1.75, 2)
    assert next_strengths((points[0], points[2]), "add") == (0.4, 0.8, 1.2, 1.6)
    assert next_strengths((point(1.8, 1, False), points[2]), "add") == ()
