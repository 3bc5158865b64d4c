"""Circuits: predictions against ablations that are repeated here by hand, for every kind of target and architecture."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mxd.trainer.analysis.circuits import tracing
from mxd.trainer.analysis.circuits.checking import Measuring, ablate, agreement, check, scores_of
from mxd.trainer.analysis.circuits.graph import (
    AblationEffect,
    Agreement,
    Circuit,
    CircuitCheck,
    CircuitVerdict,
    ExpertAtToken,
    GraphScores,
    Sufficiency,
    verdict_of,
)
from mxd.trainer.analysis.circuits.tracing import read_circuit, trace
from mxd.trainer.analysis.effects import differentiable_forward, layers_of
from mxd.trainer.config.analysis import (
    CircuitConfig,
    ContinuationTarget,
    DifferenceTarget,
    Errors,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import CONFIGS, SCALED, World, run_of, tiny_language_model

TEXT = "the old fox"
CONFIG = CircuitConfig(prompt=TEXT)


@pytest.fixture
def runs(world: World) -> list[Run]:
    """Runs of the first and the last layer. A random expert's output would be many times that of a whole MLP."""
    runs = [run_of(world, "early", 0), run_of(world, "late", 2)]
    for run in runs:
        run.layer.table.data.mul_(0.01)
    start_at_a_token(world.language_model)
    return runs


def start_at_a_token(language_model: LanguageModel) -> LanguageModel:
    """Give the start token an embedding. Norms of its zero embedding would amplify every change 1,000 times."""
    weight_VW = language_model.module.get_input_embeddings().weight
    weight_VW.data[0] = weight_VW.data[1:].mean(0) + weight_VW.data[7]
    return language_model


def ablated_logits(language_model: LanguageModel, run: Run, at: ExpertAtToken | None) -> Tensor:
    """Logits after the last token with one expert's contribution subtracted from the MLP, in one plain pass."""

    def without(x_1TI: Tensor, mlp: Mlp) -> Tensor:
        output_1TO = mlp().clone()
        if at is not None:
            routing, dense_TM = run.layer.route(x_1TI[0]), run.layer.dense_output(x_1TI[0])
            activations_TK = torch.zeros_like(routing.activations_TK)
            here_K = routing.indices_TK[at.position] == at.expert
            activations_TK[at.position, here_K] = routing.activations_TK[at.position, here_K]
            output_1TO[0] -= run.layer.contribution(dense_TM, Routing(activations_TK, routing.indices_TK))
        return output_1TO

    with torch.no_grad(), language_model.replace_mlps({run.config.layer: without}):
        logits_1TV: Tensor = language_model.module(input_ids=torch.tensor([prompt_ids(language_model, TEXT)])).logits
        return logits_1TV[0, -1]


def traced(
    language_model: LanguageModel, runs: Sequence[Run], config: CircuitConfig = CONFIG
) -> tuple[Circuit, CircuitCheck]:
    circuit = trace(language_model, runs, config)
    return circuit, check(language_model, runs, config, circuit)


@pytest.mark.parametrize("family", sorted({**CONFIGS, **SCALED}))
def test_predictions_agree_with_ablations_in_every_architecture(family: str, world: World, runs: list[Run]) -> None:
    language_model = start_at_a_token(tiny_language_model(family))
    circuit, checked = traced(language_model, runs)
    assert checked.experts.count == 20
    assert (checked.experts.correlation or 0) > 0.95
    assert (checked.experts.same_sign or 0) >= 0.9
    token = circuit.target.token  # type: ignore[union-attr]
    for at, measured in list(zip(circuit.experts, checked.measured[1:], strict=True))[:3]:
        run = next(run for run in runs if run.name == at.run)
        before_V, after_V = ablated_logits(language_model, run, None), ablated_logits(language_model, run, at)
        change = (after_V[token] - after_V.mean()) - (before_V[token] - before_V.mean())
        assert measured == pytest.approx(float(change), abs=2e-5)


def test_the_shown_experts_are_those_with_the_largest_first_predictions(world: World, runs: list[Run]) -> None:
    everything = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, nodes=100))
    few = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, nodes=5))
    assert few.experts == everything.experts[:5]
    assert few.active == everything.active > 90
    whole = trace(world.language_model, runs, CircuitConfig(prompt=TEXT[:8], nodes=100))
    assert whole.active == sum(at.position > 0 for at in whole.experts) < len(whole.experts) < 100
    assert 0 < few.retained < everything.retained <= 1


def value_of(language_model: LanguageModel, target: Target) -> float:
    """The target by its definition, in float64."""
    ids = prompt_ids(language_model, TEXT)
    more = language_model.tokenizer(target.text)["input_ids"] if isinstance(target, ContinuationTarget) else []
    with torch.no_grad():
        logits_TV = language_model.module(input_ids=torch.tensor([ids + more])).logits[0].double()
    last_V = logits_TV[len(ids) - 1]
    match target:
        case TokenTarget(token=int(token)):
            return float(last_V[token] - last_V.mean())
        case DifferenceTarget(token=token, other=other):
            return float(last_V[token] - last_V[other])
        case SetTarget(tokens=tokens):
            return float(last_V.softmax(0)[list(set(tokens))].sum().log())
        case _:
            log_p_TV = logits_TV.log_softmax(1)
            return sum(float(log_p_TV[len(ids) - 1 + index, token]) for index, token in enumerate(more))


@pytest.mark.parametrize(
    "target",
    [
        TokenTarget(token=80),
        DifferenceTarget(token=80, other=90),
        SetTarget(tokens=(80, 90, 80)),
        ContinuationTarget(text=" ran"),
    ],
    ids=lambda target: target.kind,
)
@pytest.mark.parametrize("errors", ["kept", "dropped"])
def test_every_target_is_predicted_and_measured(target: Target, errors: str, world: World, runs: list[Run]) -> None:
    config = CircuitConfig(prompt=TEXT, target=target, errors=errors, nodes=12)
    circuit, checked = traced(world.language_model, runs, config)
    assert circuit.target == target
    if errors == "kept":
        assert circuit.value == pytest.approx(value_of(world.language_model, target), abs=1e-4)
    limit = 0.95 if errors == "kept" else 0.8  # the experts of the later layer can change, and none makes up for it
    assert (checked.experts.correlation or 0) > limit


def test_an_experts_activation_as_target(world: World, runs: list[Run]) -> None:
    experts = trace(world.language_model, runs, CONFIG).experts
    late = next(at for at in experts if at.run == "late" and at.position == 11)
    config = CircuitConfig(prompt=TEXT, target=ExpertTarget(run="late", expert=late.expert))
    circuit, checked = traced(world.language_model, runs, config)
    assert circuit.value > 0
    assert {node.layer for node in circuit.nodes[1:] if node.predicted} == {0}
    assert (checked.experts.correlation or 0) > 0.9


def test_edges_equal_the_change_of_the_score_under_ablation(world: World, runs: list[Run]) -> None:
    circuit, checked = traced(world.language_model, runs)
    pairs = [
        (edge, measured, left)
        for edge, measured, left in zip(circuit.edges, checked.edges, checked.left_top_k, strict=True)
        if edge.target
    ]
    assert len(pairs) > 10
    assert (checked.between.correlation or 0) > 0.9
    for edge, measured, left in pairs[:3]:
        source, end = circuit.nodes[edge.source], circuit.nodes[edge.target]
        assert source.run == "early" and source.position <= end.position
        at = ExpertAtToken("early", source.position, source.expert or 0)

        def inputs(at: ExpertAtToken | None) -> Tensor:
            seen: list[Tensor] = []

            def watch(x_1TI: Tensor, mlp: Mlp) -> Tensor:
                seen.append(x_1TI[0, end.position])  # noqa: B023 - called in this iteration
                return mlp()

            with world.language_model.replace_mlps({2: watch}):
                ablated_logits(world.language_model, runs[0], at)
            return seen[0]

        row_I = runs[1].layer.gate.weight[end.expert].detach()
        before_I, after_I = inputs(None), inputs(at)
        assert measured == pytest.approx(float((after_I - before_I) @ row_I), abs=2e-5)
        assert left == (end.expert not in runs[1].layer.route(after_I.unsqueeze(0)).indices_TK[0].tolist())


def test_the_start_token_is_that_of_the_first_run(world: World, runs: list[Run]) -> None:
    text = runs[1].config.text.model_copy(update={"start_token": "B"})
    late = replace(runs[1], config=runs[1].config.model_copy(update={"text": text}))
    late.__dict__["layer"] = runs[1].layer
    circuit, checked = traced(world.language_model, [late, runs[0]])
    assert circuit.tokens[0].text == "B"
    assert checked.experts.count == len(circuit.experts) > 0


def test_sufficiency_by_its_definition(world: World, runs: list[Run]) -> None:
    """The shown experts of one layer are kept, and the rest is replaced by its mean over the tokens but the first."""
    run = runs[0]
    circuit, checked = traced(world.language_model, [run])
    token = circuit.target.token  # type: ignore[union-attr]

    def only(kept: set[tuple[int, int]]) -> float:
        def function(x_1TI: Tensor, mlp: Mlp) -> Tensor:
            routing, dense_TM = run.layer.route(x_1TI[0]), run.layer.dense_output(x_1TI[0])
            activations_TK = routing.activations_TK.clone()
            for position, ids in enumerate(routing.indices_TK.tolist()):
                for column, expert in enumerate(ids):
                    if position == 0 or (position, expert) in kept:
                        activations_TK[position, column] = 0
            others_TO = run.layer.contribution(dense_TM, Routing(activations_TK, routing.indices_TK))
            others_TO[1:] -= others_TO[1:].mean(0)
            return mlp() - others_TO.unsqueeze(0)

        with torch.no_grad(), world.language_model.replace_mlps({0: function}):
            ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
            logits_V = world.language_model.module(input_ids=ids).logits[0, -1]
        return float(logits_V[token] - logits_V.mean())

    assert checked.sufficiency.without_experts == pytest.approx(only(set()), abs=2e-5)
    shown = {(at.position, at.expert) for at in circuit.experts}
    assert checked.sufficiency.mean == pytest.approx(only(shown), abs=2e-5)
    assert checked.joint.predicted == pytest.approx(sum(node.predicted for node in circuit.nodes[1:]))


def test_large_steps_are_averaged_along_the_way(world: World, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables as large as at random, first predictions are worse than those of three points."""
    for run in runs:
        run.layer.table.data.mul_(20)
    monkeypatch.setattr(tracing, "LARGE_STEP", 1e9)
    monkeypatch.setattr(tracing, "LARGE_EFFECT", 1e9)
    first = trace(world.language_model, runs, CONFIG)
    monkeypatch.setattr(tracing, "LARGE_STEP", 0.0)
    averaged = trace(world.language_model, runs, CONFIG)
    assert {node.method for node in first.nodes[1:]} == {"gradient"}
    assert {node.method for node in averaged.nodes[1:]} == {"path"}
    assert averaged.experts == first.experts
    misses = []
    for circuit in (first, averaged):
        measured = check(world.language_model, runs, CONFIG, circuit).measured[1:]
        misses.append(sum(abs(node.predicted - (m or 0)) for node, m in zip(circuit.nodes[1:], measured, strict=True)))
    assert misses[1] < 0.5 * misses[0]


def test_long_texts_are_averaged_in_small_batches_that_can_be_cancelled(
    world: World, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "LARGE_STEP", 0.0)
    monkeypatch.setattr(tracing, "PATH_TOKENS", 30)
    batches: list[int] = []

    slopes = tracing._slopes

    def noted(*arguments: Any) -> list[float]:
        batches.append(len(arguments[2]))
        return slopes(*arguments)

    monkeypatch.setattr(tracing, "_slopes", noted)
    steps: list[tuple[int, int]] = []
    trace(world.language_model, runs, CONFIG, Callbacks(on_progress=lambda done, of, _note: steps.append((done, of))))
    assert set(batches) == {2}  # 12 tokens each
    assert sum(batches) == 60
    shares = [done / of for done, of in steps]
    assert shares == sorted(shares) and shares[-1] < 1
    asked = iter([False] * 3 + [True])
    batches.clear()
    with pytest.raises(CancelledError):
        trace(world.language_model, runs, CONFIG, Callbacks(is_cancelled=lambda: next(asked)))
    assert len(batches) == 3


def test_blocks_below_the_first_run_hold_no_graph(world: World, runs: list[Run]) -> None:
    reading = read_circuit(world.language_model, runs[1:], CONFIG)
    sparse_layers = layers_of(world.language_model, runs[1:])
    forward = differentiable_forward(reading, sparse_layers)
    assert forward.embedding_BTW is None
    assert forward.outputs_BTO[2].is_leaf
    assert not forward.inputs_BTI[2].requires_grad


def test_groups_are_ablated_jointly(world: World, runs: list[Run]) -> None:
    circuit, checked = traced(world.language_model, runs)
    config = CONFIG.model_copy(update={"target": circuit.target})
    single, joint = circuit.experts[:1], circuit.experts
    measured = ablate(world.language_model, runs, config, [single, joint], read=circuit.experts)
    assert [it.target for it in measured] == pytest.approx((checked.measured[1], checked.joint.measured), abs=2e-5)
    # The activations that are read change as the edges of the check, and not before the ablated expert.
    first = circuit.nodes[1]
    assert first.layer is not None
    for index, (node, change) in enumerate(zip(circuit.nodes[1:], measured[0].activations, strict=True), start=1):
        assert node.layer is not None
        if node.layer <= first.layer or node.position < first.position:
            assert change == pytest.approx(0, abs=1e-5)
        for edge, of_edge, left in zip(circuit.edges, checked.edges, checked.left_top_k, strict=True):
            if (edge.source, edge.target) == (1, index):
                assert change == pytest.approx(-(node.activation or 0) if left else of_edge, abs=2e-5)
    assert any(abs(change) > 1e-4 for change in measured[0].activations)
    # Controls are ablated as the groups are, each by itself.
    others = circuit.experts[1:]
    own, *rest = ablate(world.language_model, runs, config, [[it] for it in circuit.experts], circuit.experts)
    (compared,) = ablate(world.language_model, runs, config, [single], circuit.experts, controls=others)
    sizes = [abs(change) for change in own.activations]
    clear = [i for i, size in enumerate(sizes) if size > 1e-4]
    for i in clear:
        assert compared.weaker[i] == sum(abs(it.activations[i]) < sizes[i] for it in rest)
        assert compared.clear[i] == (compared.weaker[i] >= 0.95 * len(others))
    assert {compared.clear[i] for i in clear} == {True, False}
    assert not any(own.clear)


@pytest.mark.parametrize("errors", ["kept", "dropped"])
def test_variants_of_the_last_token_measure_what_rows_do(
    world: World, runs: list[Run], errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = CONFIG.model_copy(update={"nodes": 60, "errors": errors})
    found = trace(world.language_model, runs, asked)
    config = asked.model_copy(update={"target": found.target})
    last = max(at.position for at in found.experts)
    groups = [[at] for at in found.experts if at.position == last]
    groups.append([at for (at,) in groups])
    assert len({at.run for at in groups[-1]}) == 2
    as_rows = ablate(world.language_model, runs, config, groups, read=groups[0])
    monkeypatch.setattr(Measuring, "_batch", None)
    as_variants = ablate(world.language_model, runs, config, groups)
    assert [it.target for it in as_variants] == pytest.approx([it.target for it in as_rows], abs=1e-5)
    assert any(abs(it.target) > 1e-3 for it in as_variants)


def test_half_precision_models_compute_in_float32(world: World, runs: list[Run]) -> None:
    half = copy.deepcopy(world.language_model.module).bfloat16()
    exact = LanguageModel(copy.deepcopy(half).float(), world.language_model.tokenizer, "exact")
    model = LanguageModel(half, world.language_model.tokenizer, "half")
    before = [parameter.clone() for parameter in half.parameters()]
    (found, checked), (expected, exactly) = (traced(it, runs) for it in (model, exact))
    predictions, exact_ones = ([node.predicted for node in it.nodes] for it in (found, expected))
    assert predictions == pytest.approx(exact_ones, rel=1e-4)
    assert checked.experts.correlation == pytest.approx(exactly.experts.correlation, abs=1e-4)
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(before, half.parameters(), strict=True))


def test_scores_of_a_planted_graph() -> None:
    """Two experts, one error, one token. Expert 0 reads the token and the error evenly, expert 1 reads expert 0 and the
    token 3 : 1, and the target reads expert 1 and the error 4 : 1. Influences by hand:
    expert 1: 0.8, expert 0: 0.6, token: 0.2 + 0.3 = 0.5, error: 0.2 + 0.3 = 0.5."""
    effects_RS = torch.tensor([[0.0, 0.0, -2.0, 2.0], [3.0, 0.0, 0.0, 1.0], [0.0, -4.0, 1.0, 0.0]])
    replacement, completeness = scores_of(effects_RS, experts=2, errors=1)
    assert replacement == pytest.approx(0.5)
    # Explained: target 0.8, expert 0 0.5 * 0.6, expert 1 0.8, token and error 0.5 each; weights 1, 0.6, 0.8, 0.5, 0.5.
    assert completeness == pytest.approx((0.8 + 0.3 + 0.8 + 1.0) / 3.4)


def test_agreement_by_hand() -> None:
    found = agreement([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0), (4.0, 8.0), (-1.0, 1.0)])
    assert found.same_sign == 0.8
    assert found.slope == pytest.approx((2 + 8 + 18 + 32 - 1) / 31)
    assert found.largest_miss == 4.0
    expected = torch.corrcoef(torch.tensor([[1.0, 2, 3, 4, -1], [2, 4, 6, 8, 1]]))[0, 1]
    assert found.correlation == pytest.approx(float(expected))
    assert agreement([(1.0, 2.0)]).correlation is None
    assert agreement([(1.0, 2.0)] * 5).correlation is None
    assert agreement([]).same_sign is None


def test_rejected_requests(world: World, runs: list[Run]) -> None:
    language_model = world.language_model
    with pytest.raises(UserError, match="at least one run"):
        trace(language_model, [], TEXT)
    circuit = trace(language_model, runs, CONFIG)
    with pytest.raises(UserError, match="traced with late, which is missing"):
        check(language_model, runs[:1], CONFIG, circuit)
    moved = replace(circuit.nodes[1], expert=next(e for e in range(40) if e not in {n.expert for n in circuit.nodes}))
    changed = replace(circuit, nodes=(circuit.nodes[0], moved), edges=())
    with pytest.raises(UserError, match="Not all of these experts are active"):
        check(language_model, runs, CircuitConfig(prompt="a"), changed)


def judged(
    kept: float, lost: float, r: float | None = 0.97, same: float = 1.0, value: float = 10.0, random: float = 0.1
) -> CircuitVerdict:
    """Verdict on 20 of 90 experts with a share of the 4 that all of them add; random ones have 10 ± 5 % of it."""
    circuit = Circuit((), (), (), 2, TokenTarget(token=5), "logit", value, (), (), (), active=90, retained=0.2)
    agreed, base = Agreement(20, r, same, 1.0, 0.25), 6 * value / 10
    sufficiency = Sufficiency(base, base + 4 * kept, value, base, 8, base + 4 * random, 0.2)
    joint, scores = AblationEffect(-2.0, -4 * lost), GraphScores(0.1, 0.5)
    return verdict_of(circuit, agreed, agreed, joint, sufficiency, scores)


@pytest.mark.parametrize(
    ("verdict", "level", "said"),
    [
        (judged(0.95, 0.9), "good", "Sufficient, necessary. "),
        (judged(0.7, 0.3), "good", "Mostly sufficient, partly necessary. "),
        (judged(0.18, 0.1), "weak", "Not sufficient, not necessary. "),
        (judged(0.3, -0.04), "weak", "Partly sufficient, not necessary. "),
        (judged(0.9, 0.9, r=0.7), "weak", "Sufficient, necessary. "),
        (judged(0.9, 0.9, same=0.7), "weak", "Sufficient, necessary. "),
        (judged(0.9, 0.9, r=0.5), "bad", "Sufficient, necessary. "),
        (judged(0.9, 0.9, r=None), "bad", "Sufficient, necessary. "),
        (judged(0.9, 0.9, value=0.1), "weak", "All 90 active experts change the logit by only +0.04: no shares. "),
        (judged(0.58, 0.7, random=0.5), "weak", "Not sufficient, mostly necessary. "),
        (judged(0.58, 0.5, random=0.5), "weak", "± 5), no more than random ones, and without them 50 % remains."),
        (
            judged(-0.27, -0.19),
            "weak",
            "do not explain what all 90 add to the logit (+4.00): alone they lower the logit, ",
        ),
        (
            judged(0.7, 0.375),
            "good",
            "mostly explain what all 90 add to the logit (+4.00): alone they carry 70 % of it",
        ),
        (judged(0.7, 0.375), "good", "(20 random ones 10 % ± 5), and without them 62 % remains."),
        (judged(0.7, 0.375, r=0.7), "weak", "hold only roughly: r = 0.70, 100 % in the predicted direction. "),
        (judged(0.7, 0.375), "good", "Replacement score 0.10: 10 % of the influence starts at tokens."),
    ],
)
def test_the_words_of_a_verdict_follow_the_shares(verdict: CircuitVerdict, level: str, said: str) -> None:
    assert verdict.level == level
    assert said in f"{verdict.sentence} {verdict.headline}".replace("\N{NO-BREAK SPACE}", " ")
