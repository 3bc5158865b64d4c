"""Conditional edits equal a slow reference that evaluates every condition token by token, alone and in a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from mxd.trainer.config import Edit, Sampling, SteeringConfig, SteeringMode
from mxd.trainer.config.steering import Condition, GateTest
from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import SteeredGeneration, TokenEvent
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.run import Run
from tests.helpers.language_models import tiny_language_model
from tests.helpers.runs import World, run_of
from tests.trainer.inference.test_generation import together, tokens

PROMPT = "the old fox"
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
    for variant in ("baseline", "steered"):
        new = [step for step in steps if isinstance(step, TokenEvent) and step.variant == variant]
        prompt = prompt_ids(world.language_model, PROMPT)
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
    return [step.kl for step in steps if isinstance(step, TokenEvent) and step.variant == "steered"]


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
