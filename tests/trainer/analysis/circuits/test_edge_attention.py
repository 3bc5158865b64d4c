"""Heads and scores of an edge equal those of a replayed frozen graph, in which heads are held one by one."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig

from mxd.trainer.analysis.circuits.edge_attention import explain_edges
from mxd.trainer.analysis.circuits.edge_results import EdgeAttention, HeadPart
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitEdge, ExpertAtToken, NodeKey
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from tests.helpers.analysis.circuit_replay import FrozenGraph
from tests.helpers.language_models import CONFIGS
from tests.helpers.runs import World
from tests.trainer.analysis.circuits.test_tracing import (
    EVERYTHING,
    TEXT,
    above_mean,
    language_model_with_start,
    random_runs,
)

GROUPED = LlamaConfig(**{**CONFIGS["llama"].to_diff_dict(), "num_attention_heads": 4, "num_key_value_heads": 2})


class _Heads(TorchFunctionMode):
    """Records the output of every layer's attention, and holds one head at an earlier output."""

    def __init__(self, held: tuple[int, int, Tensor] | None = None) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []
        self._held = held

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            if self._held is not None and len(self.outputs) == self._held[0]:
                result[:, self._held[1]] = self._held[2]
            self.outputs.append(result.clone())
        return result


class Brute:
    """An edge from an expert, by removing it from the frozen graph."""

    def __init__(self, language_model: LanguageModel, runs: list[Run], circuit: Circuit, edge: CircuitEdge) -> None:
        with _Heads() as heads:
            self._graph = FrozenGraph(language_model, runs, TEXT)
        self._outputs, self._base = heads.outputs, self._graph.queries_and_keys
        self._target = circuit.nodes[edge.target]
        self._circuit, self._runs = circuit, {run.config.layer: run for run in runs}
        self._value = self._read(self._graph.logits_V)
        source = circuit.nodes[edge.source]
        assert source.run is not None and source.expert is not None
        self._source = ExpertAtToken(source.run, source.position, source.expert)

    def _read(self, logits_V: Tensor) -> float:
        node = self._target
        if node.layer is None:
            return above_mean(logits_V, self._circuit.target.id)
        gate_I = self._runs[node.layer].layer.gate.weight[node.expert]
        return float(self._graph.inputs[node.layer][node.position] @ gate_I)

    def weight(self, held: tuple[int, int] | None = None) -> float:
        """Contribution of the source to the target, past other experts and past one head."""
        with _Heads(held and (*held, self._outputs[held[0]][:, held[1]])):
            return self._value - self._read(self._graph.directly_without(self._source))

    def score_parts(self, part: HeadPart, group: int, source: ExpertAtToken) -> tuple[float, float]:
        """Contributions of a source to a score through the query, and through the keys."""
        self._graph.directly_without(source)
        (query, key), (new_query, new_key) = self._base[part.layer], self._graph.queries_and_keys[part.layer]
        visible_TD, changed_TD = (
            each[0, part.head // (group if each.shape[1] < query.shape[1] else 1), : part.query + 1]
            for each in (key, key - new_key)
        )
        query_D, changed_D = query[0, part.head, part.query], (query - new_query)[0, part.head, part.query]
        by_query = changed_D @ (visible_TD[part.key] - visible_TD.mean(0))
        by_keys = query_D @ (changed_TD[part.key] - changed_TD.mean(0))
        scale = query.shape[-1] ** -0.5
        return float(by_query) * scale, float(by_keys) * scale


@pytest.fixture(params=["gpt2", "llama-grouped"])
def language_model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    monkeypatch.setitem(CONFIGS, "llama-grouped", GROUPED)
    return language_model_with_start(request.param)


def expert_edges(circuit: Circuit) -> list[CircuitEdge]:
    """An edge to the logit and one to an expert, each with a source on an earlier token."""
    nodes = circuit.nodes
    across = [
        edge
        for edge in circuit.edges
        if nodes[edge.source].kind == "expert" and nodes[edge.source].position < nodes[edge.target].position
    ]
    return [next(edge for edge in across if (edge.target == 0) is to_logit) for to_logit in (True, False)]


def explained(language_model: LanguageModel, runs: list[Run], circuit: Circuit, edge: CircuitEdge) -> EdgeAttention:
    keys = (circuit.nodes[edge.source].key, circuit.nodes[edge.target].key)
    return explain_edges(language_model, runs, EVERYTHING, [keys])[0]


def test_heads_and_scores_equal_those_of_the_replayed_graph(world: World, language_model: LanguageModel) -> None:
    runs = random_runs(world, language_model, (0, 1, 2))
    circuit = trace(language_model, runs, EVERYTHING)
    heads = language_model.config.num_attention_heads
    checked = 0
    for edge in expert_edges(circuit):
        result, brute = explained(language_model, runs, circuit, edge), Brute(language_model, runs, circuit, edge)
        assert result.weight == pytest.approx(edge.weight, rel=1e-3, abs=1e-4)
        assert brute.weight() == pytest.approx(edge.weight, rel=1e-3, abs=2e-3)
        assert result.without_attention == 0
        for part in result.heads:
            without = brute.weight(held=(part.layer, part.head))
            assert brute.weight() - without == pytest.approx(part.weight, rel=1e-2, abs=2e-3)
        for layer in result.layers:
            held = [brute.weight() - brute.weight(held=(layer.layer, head)) for head in range(heads)]
            assert sum(held) == pytest.approx(layer.heads, rel=1e-2, abs=4e-3)
            assert layer.heads + layer.residual == pytest.approx(result.weight)
        for part in result.heads:
            if part.score is None:
                continue
            for side, (listed, rest) in enumerate(
                [(part.score.query_sources, part.score.query_rest), (part.score.key_sources, part.score.key_rest)]
            ):
                assert sum(it.score for it in listed) + rest == pytest.approx(part.score.above_mean, abs=1e-3)
                for it in (it for it in listed if it.run is not None and it.kind == "expert"):
                    assert it.position is not None and it.expert is not None
                    source = ExpertAtToken(it.run or "", it.position, it.expert)
                    assert brute.score_parts(part, 2, source)[side] == pytest.approx(it.score, rel=1e-2, abs=2e-3)
                    checked += 1
    assert checked > 10


def test_one_layer_of_attention_explains_the_whole_edge(world: World) -> None:
    runs = random_runs(world, world.language_model, (1, 2))
    circuit = trace(world.language_model, runs, EVERYTHING)
    result = explained(world.language_model, runs, circuit, expert_edges(circuit)[1])
    (layer,) = result.layers
    assert layer.layer == 2
    assert layer.heads == pytest.approx(result.weight)
    for part in result.heads:
        assert abs(part.pair_weight) <= abs(part.weight) + 1e-4
        assert 0 < part.pattern <= 1 and part.key <= part.query


def test_an_edge_on_one_token_passes_the_residual_stream(world: World) -> None:
    runs = random_runs(world, world.language_model, (1, 2))
    circuit = trace(world.language_model, runs, EVERYTHING)
    nodes = circuit.nodes
    edge = next(it for it in circuit.edges if it.target == 0 and nodes[it.source].layer == 2)
    result = explained(world.language_model, runs, circuit, edge)
    assert (result.layers, result.heads) == ((), ())
    assert result.without_attention == pytest.approx(result.weight)


def test_unknown_nodes_and_other_attention_are_errors(world: World) -> None:
    runs = random_runs(world, world.language_model, (1, 2))
    target: NodeKey = ("target", 11, None, None)
    token: NodeKey = ("embedding", 3, None, None)
    wrong: list[tuple[NodeKey, NodeKey]] = [
        (("expert", 3, 1, 10**6), target),
        (("mlp", 3, 1, None), target),
        (token, ("mlp", 3, 0, None)),
    ]
    for edge in wrong:
        with pytest.raises(UserError, match="Choose a node of the circuit"):
            explain_edges(world.language_model, runs, EVERYTHING, [edge])
    other = language_model_with_start("gemma2")
    with pytest.raises(UserError, match="cannot be explained for this architecture"):
        explain_edges(other, random_runs(world, other, (1, 2)), EVERYTHING, [(token, target)])
