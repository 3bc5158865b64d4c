"""Routing, steered generation and circuits of a text, as results that display in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.edits import Edits, parse_edits
from mxd.api.loading import as_layer
from mxd.api.measurements import AnyRun
from mxd.api.models import language_model_of, unchanged
from mxd.api.results import resolve_medians
from mxd.trainer.analysis.circuits.edge_attention import explain_circuit_edges
from mxd.trainer.analysis.circuits.edge_results import EdgeAttention
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitEdge
from mxd.trainer.analysis.circuits.tracing import trace as trace_circuit
from mxd.trainer.config import SteeringConfig
from mxd.trainer.config.analysis import CircuitConfig, TargetConfig
from mxd.trainer.inference.results import Routing, SteeredGeneration
from mxd.trainer.inference.routing import route as route_text
from mxd.trainer.inference.steering import steer as steer_text


def route(
    run: AnyRun,
    text: str,
    *,
    k: int | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Routing:
    """Route a text: the active experts of each token, with their activations and shares of the output.

    >>> routing = mxd.route("my-run", "One day", model=model)
    >>> routing.tokens[1].text, len(routing.tokens[1].experts) <= 4
    ('O', True)

    Args:
        run: the run, or its name.
        text: the text. The run's start token precedes it.
        k: active experts per token. Default: the run's K.
        model: as in ``index``.
        tokenizer: as in ``index``.

    Raises:
        UserError: the text is empty or too long, or the run has no such K.
    """
    layer = as_layer(run)
    with language_model_of(layer, model, tokenizer) as language_model:
        return route_text(language_model, layer.run, text, k)


def generate(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    edits: Edits,
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> SteeredGeneration:
    """Continue a prompt without edits (baseline) and with them (steered), with equal random numbers.

    >>> generation = mxd.generate("my-run", "One day", {7: +6, 3: "ablate"}, model=model, max_tokens=4)
    >>> [len(generation.tokens(variant)) <= 4 for variant in ("baseline", "steered")]
    [True, True]

    Args:
        run: the steered run, or several of different layers with the steered one first.
        prompt: the text to continue.
        edits: as in ``Layer.steer``; edits in text form can also name other runs, as in ``"other-run/7:add:6"``.
        model: as in ``index``.
        tokenizer: as in ``index``.
        settings: other fields of ``SteeringConfig`` and ``Sampling``, such as ``max_tokens=24`` or ``seed=1``.

    Raises:
        UserError: the prompt is too long, an edit or setting is invalid, or a run does not fit the model.
    """
    layers = _layers(run)
    parsed = resolve_medians(layers[0].run, parse_edits(edits))
    config = SteeringConfig.from_keywords({"prompt": prompt, "edits": parsed}, settings)
    with language_model_of(layers[0], model, tokenizer) as language_model:
        runs = [layer.run for layer in layers]
        return SteeredGeneration.collect(runs[0].name, prompt, steer_text(language_model, runs, config))


def trace(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> Circuit:
    """Trace a circuit: the attribution graph of a next token through the layers of one or more runs.

    >>> circuit = mxd.trace("my-run", "One day", model=model, nodes=5)
    >>> len(circuit.nodes) <= 6
    True

    Args:
        run: the run, or several of different layers.
        prompt: the text. The most probable next token is explained, unless ``target`` names another.
        model: as in ``index``.
        tokenizer: as in ``index``.
        settings: other fields of ``CircuitConfig``, such as ``nodes=20``.

    Raises:
        UserError: the text is too long, or circuits are not supported for a run.
    """
    layers = _layers(run)
    config = CircuitConfig.from_keywords({"prompt": prompt}, settings)
    cores = (layer.core for layer in layers)
    with language_model_of(layers[0], model, tokenizer) as language_model, unchanged(*cores):
        return trace_circuit(language_model, [layer.run for layer in layers], config)


def explain_edges(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    circuit: Circuit,
    edges: Sequence[CircuitEdge],
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> tuple[EdgeAttention, ...]:
    """Explain edges of a circuit: the heads that carried each, and the experts that made them look there.

    >>> circuit = mxd.trace("my-run", "One day", model=model, nodes=5)
    >>> edges = mxd.explain_edges("my-run", "One day", circuit, circuit.edges[:1], model=model)
    >>> abs(edges[0].weight - circuit.edges[0].weight) < 1e-3
    True

    Args:
        run: as in ``trace``.
        prompt: the text of the circuit.
        circuit: result of ``trace``.
        edges: edges of the circuit, such as ``circuit.edges_between_tokens[:3]``.
        model: as in ``index``.
        tokenizer: as in ``index``.
        settings: other fields of ``TargetConfig`` that the circuit was traced with: ``position`` and ``errors``.

    Raises:
        UserError: as ``trace``, or the architecture's attention cannot be explained.
    """
    layers = _layers(run)
    config = TargetConfig.from_keywords({"prompt": prompt}, settings)
    cores = (layer.core for layer in layers)
    with language_model_of(layers[0], model, tokenizer) as language_model, unchanged(*cores):
        return explain_circuit_edges(language_model, [layer.run for layer in layers], config, circuit, edges)


def _layers(runs: AnyRun | Sequence[AnyRun]) -> list[Any]:
    several = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    return [as_layer(run) for run in several]
