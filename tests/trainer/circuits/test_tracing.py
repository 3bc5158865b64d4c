"""Circuits add up, in every architecture: direct effects to the logit and to coefficients, effects along all paths."""

from __future__ import annotations

import pytest
import torch

from tests.language_models import CONFIGS, tiny_language_model
from tests.layers import flat_gate, random_layer
from tests.runs import World, run_of
from tests.trainer.circuits.replay import FrozenGraph
from trainer.circuits.config import MOST_TOKENS, CircuitConfig
from trainer.circuits.effects import switch_off
from trainer.circuits.graph import Switch
from trainer.circuits.passes import run_frozen
from trainer.circuits.sources import Sources
from trainer.circuits.tracing import target_seed, trace
from trainer.config import LayerConfig
from trainer.errors import TooLongError, UserError
from trainer.language_model import LanguageModel
from trainer.layers.registry import build_layer
from trainer.layers.sparse import SparseLayer
from trainer.routing import prompt_ids
from trainer.run import Run

TEXT = "the old fox"
EVERYTHING = CircuitConfig(prompt=TEXT, nodes=300, share=1.0, edge_share=1.0, followed=2048)


def started_language_model(family: str) -> LanguageModel:
    """A language model whose start token is something: where it is zero, norms make rounding 1,000 times as large."""
    language_model = tiny_language_model(family)
    weight_VW = language_model.module.get_input_embeddings().weight
    weight_VW.data[0] = weight_VW.data[1:].mean(0) + weight_VW.data[7]
    return language_model


def runs_of(world: World, language_model: LanguageModel, layers: tuple[int, ...]) -> list[Run]:
    """Runs with random weights, of any architecture."""
    runs = []
    for number in layers:
        run, shape = run_of(world, f"l{number}", number), language_model.mlp_shape(number)
        widths = (shape.input_width, shape.hidden_width, shape.output_width)
        run.__dict__["layer"] = tamed(random_layer(shape.encoder, shape.activation, widths, seed=number))
        runs.append(run)
    return runs


def tamed(layer: SparseLayer) -> SparseLayer:
    """What it writes made as small as what MLPs write: else sums are of large numbers that cancel."""
    layer.table.data.mul_(0.05)
    return layer


def above_mean(logits_V: torch.Tensor, token: int) -> float:
    return float(logits_V[token] - logits_V.mean())


@pytest.mark.parametrize("errors", ["kept", "dropped"])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_all_parts_add_up_to_the_logit(world: World, family: str, errors: str) -> None:
    language_model = started_language_model(family)
    runs = runs_of(world, language_model, (0, 2))
    circuit = trace(language_model, runs, CircuitConfig(prompt=TEXT, errors=errors))
    logits_V = language_model.logits(torch.tensor([prompt_ids(language_model, TEXT)]))[0, -1]
    if errors == "dropped":
        with language_model.replace({run.config.layer: run.layer for run in runs}):
            logits_V = language_model.logits(torch.tensor([prompt_ids(language_model, TEXT)]))[0, -1]
    assert circuit.target.id == int(logits_V.argmax())
    assert circuit.nodes[0].direct == pytest.approx(above_mean(logits_V, circuit.target.id), abs=1e-4)
    assert sum(circuit.direct.values()) == pytest.approx(circuit.nodes[0].direct, abs=1e-3)
    assert abs(circuit.rounding) < 1e-3
    assert sum(circuit.begins.values()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2"])
def test_what_goes_into_an_expert_adds_up_to_its_coefficient(world: World, family: str) -> None:
    language_model = started_language_model(family)
    runs = runs_of(world, language_model, (0, 1, 2))
    ids_BT = torch.tensor([prompt_ids(language_model, TEXT)] * 4)
    it = run_frozen(language_model, runs, ids_BT, "kept")
    sources, site, layer = Sources.of(it), it.sites[2], runs[2].layer
    experts = [place for place in sources.places if place.kind == "expert" and place.layer == 2][::7][:4]
    seed_BTI = torch.zeros_like(site.x_BTI)
    for row, place in enumerate(experts):
        seed_BTI[row, place.position] = flat_gate(layer).weight[place.expert].detach()
    parts = it.parts([site.x_BTI], [seed_BTI])
    whole_B = sources.row(parts).sum(1) + parts.constants_B
    for whole, place in zip(whole_B.tolist(), experts, strict=True):
        assert whole + float(flat_gate(layer).bias[place.expert]) == pytest.approx(place.coefficient, abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2"])
def test_switching_off_changes_the_frozen_graph_by_the_effect(world: World, family: str) -> None:
    language_model = started_language_model(family)
    runs = runs_of(world, language_model, (0, 1, 2))
    circuit = trace(language_model, runs, EVERYTHING)
    graph, token = FrozenGraph(language_model, runs, TEXT), circuit.target.id
    whole = above_mean(graph.logits_V, token)
    assert whole == pytest.approx(circuit.nodes[0].direct, abs=1e-3)
    experts = [node for node in circuit.nodes if node.kind == "expert"]
    indirect = 0
    for node in experts[::9]:
        assert node.run is not None
        assert node.expert is not None
        lost = whole - above_mean(graph.without(Switch(node.run, node.position, node.expert)), token)
        assert lost == pytest.approx(node.effect, rel=1e-4, abs=2e-3)
        indirect += abs(node.effect - node.direct) > 1e-2
    assert indirect > 3
    groups = [circuit.experts[:5], circuit.experts[3:30:4]]
    for group, effect in zip(groups, switch_off(language_model, runs, EVERYTHING, groups), strict=True):
        assert effect.predicted == pytest.approx(above_mean(graph.without(*group), token) - whole, rel=1e-4, abs=3e-3)


def test_edges_are_direct_effects(world: World) -> None:
    runs = runs_of(world, world.language_model, (0, 2))
    circuit = trace(world.language_model, runs, EVERYTHING)
    into = {place: [edge for edge in circuit.edges if edge.target == place] for place in range(len(circuit.nodes))}
    for edge in into[0]:
        assert edge.weight == pytest.approx(circuit.nodes[edge.source].direct)
    late = [place for place, node in enumerate(circuit.nodes) if node.layer == 2 and node.kind == "expert"]
    sources = [circuit.nodes[edge.source] for place in late for edge in into[place]]
    assert {node.kind for node in sources} == {"expert", "embedding", "error", "mlp"}
    assert all(node.layer is None or node.layer < 2 for node in sources)
    early = [place for place, node in enumerate(circuit.nodes) if node.layer == 0 and node.kind == "expert"]
    assert {circuit.nodes[edge.source].kind for place in early for edge in into[place]} == {"embedding"}
    assert all(circuit.nodes[e.source].position <= circuit.nodes[e.target].position for e in circuit.edges)


def test_it_is_pruned_as_asked(world: World) -> None:
    runs = runs_of(world, world.language_model, (0, 1, 2))
    whole = trace(world.language_model, runs, EVERYTHING)
    small = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, nodes=12))
    assert len(small.nodes) <= 13
    assert small.num_nodes == whole.num_nodes
    assert 0 < small.kept_influence < whole.kept_influence <= 1
    values = [node.influence for node in small.nodes]
    assert values == sorted(values, reverse=True)
    assert {edge.source for edge in small.edges} == set(range(1, len(small.nodes)))
    few = trace(world.language_model, runs, CircuitConfig(prompt=TEXT, followed=2))
    assert sum(node.followed for node in few.nodes if node.kind == "expert") <= 2
    assert few.begins["expert"] > whole.begins["expert"]


def test_one_run_and_another_target(world: World) -> None:
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
    ("method", "more"),
    [("transcoder", {}), ("skip-transcoder", {}), ("relu-mxd", {"k": 33}), ("low-rank-mxd", {"rank": 5})],
)
def test_other_methods_add_up_too(world: World, method: str, more: dict[str, int]) -> None:
    run, shape = run_of(world, "other", 1), world.language_model.mlp_shape(1)
    sizes: dict[str, int | str] = {
        "input_width": shape.input_width,
        "hidden_width": 20,
        "output_width": shape.output_width,
    }
    sizes |= {"activation": "silu", "encoder": "glu"}
    layer = build_layer(LayerConfig.model_validate({"method": method, **sizes, "num_experts": 33, "k": 4, **more}))
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    run.__dict__["layer"] = tamed(layer)
    runs = [run, *runs_of(world, world.language_model, (2,))]
    circuit = trace(world.language_model, runs, CircuitConfig(prompt=TEXT))
    assert abs(circuit.rounding) < 1e-3
    first = next(node for node in circuit.nodes if node.kind == "expert")
    (effect,) = switch_off(world.language_model, runs, EVERYTHING, [circuit.experts[:1]])
    assert effect.predicted == pytest.approx(-first.effect, abs=1e-3)


def test_the_language_model_is_left_as_it_was(world: World) -> None:
    ids = torch.tensor([prompt_ids(world.language_model, TEXT)])
    before = world.language_model.logits(ids)
    run = run_of(world, "alone", 1)
    trace(world.language_model, run, TEXT)
    assert torch.equal(world.language_model.logits(ids), before)
    assert not world.language_model.anatomy.blocks[0]._forward_pre_hooks
    assert all(
        parameter.grad is None for parameter in (*world.language_model.module.parameters(), *run.layer.parameters())
    )


def test_what_is_not_frozen_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.circuits.freezing._FROZEN", {})
    with pytest.raises(UserError, match="something between its MLPs that cannot be frozen"):
        trace(world.language_model, run_of(world, "alone", 1), TEXT)


def test_what_cannot_be_traced_is_said(world: World) -> None:
    language_model, run = world.language_model, run_of(world, "alone", 1)
    with pytest.raises(UserError, match="name one at least"):
        trace(language_model, [], TEXT)
    with pytest.raises(UserError, match="There is no text"):
        trace(language_model, run, "")
    with pytest.raises(UserError, match="one run a layer"):
        trace(language_model, [run, run_of(world, "other", 1)], TEXT)
    with pytest.raises(UserError, match="tokens 0 to 11; there is no token 12"):
        trace(language_model, run, CircuitConfig(prompt=TEXT, position=12))
    with pytest.raises(UserError, match="no token 9999"):
        trace(language_model, run, CircuitConfig(prompt=TEXT, target=9999))
    language_model.config.max_position_embeddings = 2 * MOST_TOKENS
    with pytest.raises(TooLongError, match="128 tokens at most"):
        trace(language_model, run, "a" * MOST_TOKENS)
    assert len(trace(language_model, run, CircuitConfig(prompt="a" * MOST_TOKENS, position=5)).tokens) == 6


def test_it_stops_where_progress_raises(world: World) -> None:
    class GoneError(Exception):
        """Nobody waits for it."""

    told: list[tuple[int, int]] = []

    def gone(done: int, total: int, note: str) -> None:
        told.append((done, total))
        if done:
            raise GoneError

    with pytest.raises(GoneError):
        trace(world.language_model, run_of(world, "alone", 1), CircuitConfig(prompt=TEXT, followed=40), gone)
    assert told == [(0, 40), (16, 40)]


def test_the_targets_seed_is_the_logit_less_the_mean() -> None:
    logits_BV = torch.randn(2, 7)
    values_B = (target_seed(logits_BV, 3) * logits_BV).sum(1)
    torch.testing.assert_close(values_B, logits_BV[:, 3] - logits_BV.mean(1))
