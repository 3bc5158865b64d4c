"""Contributions sum to logits and coefficients in every architecture; effects along all paths; edges."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.analysis.circuits.ablation import ablate_experts
from mxd.trainer.analysis.circuits.forward_pass import run_linearized
from mxd.trainer.analysis.circuits.graph import ExpertAtToken
from mxd.trainer.analysis.circuits.nodes import Sources
from mxd.trainer.analysis.circuits.tracing import max_traced, target_seed, trace
from mxd.trainer.config import LayerConfig
from mxd.trainer.config.analysis import MOST_TOKENS, CircuitConfig
from mxd.trainer.errors import CancelledError, TooLongError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.analysis.circuit_replay import FrozenGraph
from tests.helpers.language_models import CONFIGS, tiny_language_model
from tests.helpers.layers import random_layer
from tests.helpers.runs import World, run_of

TEXT = "the old fox"
EVERYTHING = CircuitConfig(prompt=TEXT, nodes=300, share=1.0, edge_share=1.0, max_traced=2048)


def language_model_with_start(family: str) -> LanguageModel:
    """Language model with a non-zero start token. Norms of a zero embedding amplify rounding errors 1,000 times."""
    language_model = tiny_language_model(family)
    weight_VW = language_model.module.get_input_embeddings().weight
    weight_VW.data[0] = weight_VW.data[1:].mean(0) + weight_VW.data[7]
    return language_model


def random_runs(world: World, language_model: LanguageModel, layers: tuple[int, ...]) -> list[Run]:
    """Runs with random weights, of any architecture."""
    runs = []
    for layer in layers:
        run, shape = run_of(world, f"l{layer}", layer), language_model.mlp_shape(layer)
        widths = (shape.input_width, shape.hidden_width, shape.output_width)
        run.__dict__["layer"] = scaled_down(random_layer(shape.encoder, shape.activation, widths, seed=layer))
        runs.append(run)
    return runs


def scaled_down(layer: SparseLayer) -> SparseLayer:
    """Scale a layer's output to that of MLPs, so that sums do not cancel."""
    layer.table.data.mul_(0.05)
    return layer


def above_mean(logits_V: torch.Tensor, token: int) -> float:
    return float(logits_V[token] - logits_V.mean())


@pytest.mark.parametrize("errors", ["kept", "dropped"])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_direct_contributions_sum_to_the_logit(world: World, family: str, errors: str) -> None:
    language_model = language_model_with_start(family)
    runs = random_runs(world, language_model, (0, 2))
    circuit = trace(language_model, runs, CircuitConfig(prompt=TEXT, errors=errors))
    logits_V = language_model.logits(torch.tensor([prompt_ids(language_model, TEXT)]))[0, -1]
    if errors == "dropped":
        with language_model.replace({run.config.layer: run.layer for run in runs}):
            logits_V = language_model.logits(torch.tensor([prompt_ids(language_model, TEXT)]))[0, -1]
    assert circuit.target.id == int(logits_V.argmax())
    assert circuit.nodes[0].direct == pytest.approx(above_mean(logits_V, circuit.target.id), abs=1e-4)
    assert sum(circuit.direct.values()) == pytest.approx(circuit.nodes[0].direct, abs=1e-3)
    assert abs(circuit.rounding) < 1e-3
    assert sum(circuit.origins.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2"])
def test_contributions_to_an_expert_sum_to_its_coefficient(world: World, family: str) -> None:
    language_model = language_model_with_start(family)
    runs = random_runs(world, language_model, (0, 1, 2))
    forward_pass = run_linearized(language_model, runs, prompt_ids(language_model, TEXT), "kept")
    sources, site, layer = Sources.from_pass(forward_pass), forward_pass.sites[2], runs[2].layer
    experts = [node for node in sources.nodes if node.kind == "expert" and node.layer == 2][::7][:4]
    seed_R1TI = torch.zeros(len(experts), *site.x_1TI.shape)
    for row, node in enumerate(experts):
        seed_R1TI[row, 0, node.position] = layer.gate.weight[node.expert].detach()
    contributions = forward_pass.contributions([site.x_1TI], [seed_R1TI])
    total_R = sources.flatten(contributions).sum(1) + contributions.constants_R
    for total, node in zip(total_R.tolist(), experts, strict=True):
        assert total + float(layer.gate.bias[node.expert]) == pytest.approx(node.coefficient, abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2"])
def test_ablation_changes_the_frozen_graph_by_the_effect(world: World, family: str) -> None:
    language_model = language_model_with_start(family)
    runs = random_runs(world, language_model, (0, 1, 2))
    circuit = trace(language_model, runs, EVERYTHING)
    graph, token = FrozenGraph(language_model, runs, TEXT), circuit.target.id
    whole = above_mean(graph.logits_V, token)
    assert whole == pytest.approx(circuit.nodes[0].direct, abs=1e-3)
    experts = [node for node in circuit.nodes if node.kind == "expert"]
    indirect = 0
    for node in experts[::9]:
        assert node.run is not None
        assert node.expert is not None
        lost = whole - above_mean(graph.without(ExpertAtToken(node.run, node.position, node.expert)), token)
        assert lost == pytest.approx(node.effect, rel=1e-4, abs=2e-3)
        indirect += abs(node.effect - node.direct) > 1e-2
    assert indirect > 3
    groups = [circuit.experts[:5], circuit.experts[3:30:4]]
    for group, effect in zip(groups, ablate_experts(language_model, runs, EVERYTHING, groups), strict=True):
        assert effect.predicted == pytest.approx(above_mean(graph.without(*group), token) - whole, rel=1e-4, abs=3e-3)


def test_edges_are_direct_effects(world: World) -> None:
    runs = random_runs(world, world.language_model, (0, 2))
    circuit = trace(world.language_model, runs, EVERYTHING)
    incoming = {index: [edge for edge in circuit.edges if edge.target == index] for index in range(len(circuit.nodes))}
    for edge in incoming[0]:
        assert edge.weight == pytest.approx(circuit.nodes[edge.source].direct)
    late = [index for index, node in enumerate(circuit.nodes) if node.layer == 2 and node.kind == "expert"]
    sources = [circuit.nodes[edge.source] for index in late for edge in incoming[index]]
    assert {node.kind for node in sources} == {"expert", "embedding", "error", "mlp"}
    assert all(node.layer is None or node.layer < 2 for node in sources)
    early = [index for index, node in enumerate(circuit.nodes) if node.layer == 0 and node.kind == "expert"]
    assert {circuit.nodes[edge.source].kind for index in early for edge in incoming[index]} == {"embedding"}
    assert all(circuit.nodes[e.source].position <= circuit.nodes[e.target].position for e in circuit.edges)


def test_pruning_limits_nodes_and_traced_experts(world: World) -> None:
    runs = random_runs(world, world.language_model, (0, 1, 2))
    whole = trace(world.language_model, runs, EVERYTHING)
    small = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, nodes=12))
    assert len(small.nodes) <= 13
    assert small.num_nodes == whole.num_nodes
    assert 0 < small.retained_influence < whole.retained_influence <= 1
    values = [node.influence for node in small.nodes]
    assert values == sorted(values, reverse=True)
    assert {edge.source for edge in small.edges} == set(range(1, len(small.nodes)))
    few = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, max_traced=2))
    assert sum(node.traced for node in few.nodes if node.kind == "expert") <= 2
    assert few.origins["expert"] > whole.origins["expert"]


def test_a_single_run_and_a_chosen_target(world: World) -> None:
    run = run_of(world, "alone", 1)
    circuit = trace(world.language_model, run, CircuitConfig(prompt=TEXT, target=9, position=4, nodes=300, share=1))
    assert [token.text for token in circuit.tokens[1:]] == list(TEXT[:4])
    assert circuit.target.id == 9
    assert circuit.runs == ("alone",)
    assert {node.kind for node in circuit.nodes} >= {"target", "expert", "mlp", "embedding"}
    logits_V = world.language_model.logits(torch.tensor([prompt_ids(world.language_model, TEXT)]))[0, 4]
    assert circuit.nodes[0].direct == pytest.approx(above_mean(logits_V, 9), abs=1e-4)
    assert "effect on the logit" in circuit._repr_html_()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("transcoder", {}),
        ("skip-transcoder", {}),
        ("relu-mxd", {"k": 33}),
        ("low-rank-mxd", {"rank": 5}),
        ("hidden-mxd", {}),
    ],
)
def test_other_methods_sum_to_the_logit(world: World, method: str, options: dict[str, int]) -> None:
    run, shape = run_of(world, "other", 1), world.language_model.mlp_shape(1)
    sizes: dict[str, int | str] = {
        "input_width": shape.input_width,
        "hidden_width": 20,
        "output_width": shape.output_width,
    }
    sizes |= {"activation": "silu", "encoder": "glu"}
    layer = build_layer(LayerConfig.model_validate({"method": method, **sizes, "num_experts": 33, "k": 4, **options}))
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    run.__dict__["layer"] = scaled_down(layer)
    runs = [run, *random_runs(world, world.language_model, (2,))]
    circuit = trace(world.language_model, runs, CircuitConfig(prompt=TEXT))
    assert abs(circuit.rounding) < 1e-3
    first = next(node for node in circuit.nodes if node.kind == "expert")
    (effect,) = ablate_experts(world.language_model, runs, EVERYTHING, [circuit.experts[:1]])
    assert effect.predicted == pytest.approx(-first.effect, abs=1e-3)


def test_the_language_model_is_unchanged(world: World) -> None:
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    before = world.language_model.logits(ids)
    run = run_of(world, "alone", 1)
    trace(world.language_model, run, TEXT)
    assert torch.equal(world.language_model.logits(ids), before)
    assert not world.language_model.architecture.blocks[0]._forward_pre_hooks
    assert all(
        parameter.grad is None for parameter in (*world.language_model.module.parameters(), *run.layer.parameters())
    )


def test_nonlinear_architectures_are_detected(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxd.trainer.analysis.circuits.linearization._LINEARIZED", {})
    with pytest.raises(UserError, match="not supported for this architecture"):
        trace(world.language_model, run_of(world, "alone", 1), TEXT)


def test_invalid_requests_are_errors(world: World) -> None:
    language_model, run = world.language_model, run_of(world, "alone", 1)
    with pytest.raises(UserError, match="at least one run"):
        trace(language_model, [], TEXT)
    with pytest.raises(UserError, match="text is empty"):
        trace(language_model, run, "")
    with pytest.raises(UserError, match="Choose one run per layer"):
        trace(language_model, [run, run_of(world, "other", 1)], TEXT)
    with pytest.raises(UserError, match="Unknown token position 12"):
        trace(language_model, run, CircuitConfig(prompt=TEXT, position=12))
    with pytest.raises(UserError, match="Unknown target token 9999"):
        trace(language_model, run, CircuitConfig(prompt=TEXT, target=9999))
    language_model.config.max_position_embeddings = 2 * MOST_TOKENS
    with pytest.raises(TooLongError, match="maximum is 2,048"):
        trace(language_model, run, "a" * MOST_TOKENS)
    assert len(trace(language_model, run, CircuitConfig(prompt="a" * MOST_TOKENS, position=5)).tokens) == 6


def test_tracing_can_be_cancelled(world: World) -> None:
    reports: list[tuple[int, int]] = []
    callbacks = Callbacks(lambda done, total, _: reports.append((done, total)), lambda: len(reports) == 2)
    with pytest.raises(CancelledError):
        trace(world.language_model, run_of(world, "alone", 1), CircuitConfig(prompt=TEXT, max_traced=40), callbacks)
    assert reports == [(0, 40), (16, 40)]


@pytest.mark.parametrize(("tokens", "traced"), [(10, 128), (724, 128), (1024, 64), (2048, 32)])
def test_fewer_experts_are_traced_in_long_texts(tokens: int, traced: int) -> None:
    assert max_traced(CircuitConfig(prompt=TEXT), tokens) == traced
    assert max_traced(CircuitConfig(prompt=TEXT, max_traced=7), tokens) == 7


def test_the_target_is_the_logit_minus_the_mean() -> None:
    logits_BV = torch.randn(2, 7)
    values_B = (target_seed(logits_BV, 3) * logits_BV).sum(1)
    torch.testing.assert_close(values_B, logits_BV[:, 3] - logits_BV.mean(1))
