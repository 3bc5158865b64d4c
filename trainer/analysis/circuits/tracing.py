"""Tracing of circuits: the experts of a prompt with the largest predicted effects on a target, and their interactions.

One method, the live gradient (see ``effects``): the predicted change of the target when an expert is ablated is minus
the gradient at its MLP's output times its contribution. One backward pass serves all active experts of all layers. The
effect of a shown expert A on a shown expert B is predicted in the same way with B's score as the target, which takes
one backward pass per shown expert. The score is the gate activation before the top-k.

The first order ends where a step is large. Then the gradient is averaged over three points on the way to the ablated
expert (integrated gradients; Sundararajan et al., Axiomatic Attribution for Deep Networks, 2017), and the node says so.
An edge says so if the predicted score is no longer above that of the strongest inactive expert.

Shapes: T tokens, I input width, O output width, K active experts, W residual width, B rows, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.graph import Circuit, CircuitEdge, CircuitNode, CircuitToken, Method, NextToken
from mxd.trainer.analysis.effects import (
    Forward,
    Layers,
    Reading,
    differentiable_forward,
    edited_mlps,
    expert_products,
    gradients_of,
    layers_of,
    read_target,
)
from mxd.trainer.config.analysis import (
    MOST_TOKENS,
    CircuitConfig,
    ContinuationTarget,
    DifferenceTarget,
    Errors,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
    target_tokens,
)
from mxd.trainer.config.layer import method_traits
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.inference.routing import text_ids
from mxd.trainer.language_model.loading import float32_weights
from mxd.trainer.language_model.mlp_hooks import LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import single_texts, token_texts
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

NUM_CANDIDATES = 10
LARGE_STEP = 0.3
"""Norm of an expert's contribution relative to that of its MLP's output, above which a node's gradient is averaged."""
LARGE_EFFECT = 0.5
"""Predicted change of the target above which a node's gradient is averaged."""
PATH = (1 / 6, 1 / 2, 5 / 6)
"""Points of the averaged gradient: the midpoints of three equal parts of the way."""
PATH_ROWS = 12
PATH_TOKENS = 1024
"""Maximum rows and tokens of a batch of points, unless one text has more: a row with gradients takes about 1.5 MB per
token of a model of 135M parameters."""
EDGE_SHARE = 0.9
"""Share of the effect between experts that the shown edges have."""


@dataclass(frozen=True)
class ActiveExpert:
    layer: int
    position: int
    expert: int
    activation: float
    predicted: float
    """Predicted change of the target when it is ablated."""
    method: Method = "gradient"


def trace(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig | str,
    callbacks: Callbacks = NO_CALLBACKS,
    ids: Sequence[int] | None = None,
) -> Circuit:
    """Trace the circuit of a prompt through the layers of some runs. Half-precision models compute in float32.

    Args:
        runs: one or more runs of different layers of this language model.
        config: the prompt, or the prompt with settings.
        callbacks: progress in backward passes, and cancellation.
        ids: token ids of the prompt, if it has been tokenised.

    Raises:
        TooLongError: the text has more tokens than the language model or ``MOST_TOKENS`` allow.
        UserError: the text is empty, a run was trained on another language model, or there is no such token or expert.
    """
    config = CircuitConfig(prompt=config) if isinstance(config, str) else config
    runs = [runs] if isinstance(runs, Run) else list(runs)
    reading = read_circuit(language_model, runs, config, ids)  # the start token is that of the first
    runs = sorted(runs, key=lambda run: run.config.layer)
    with float32_weights(language_model.module):
        sparse_layers = layers_of(language_model, runs)
        functions = edited_mlps(sparse_layers, config.errors)
        forward = differentiable_forward(reading, sparse_layers, functions)
        reading = reading.with_token(forward)
        value_B = reading.value(forward)
        active = sorted(active_experts(forward, value_B), key=lambda expert: -abs(expert.predicted))
        shown = active[: config.nodes]
        steps = len(shown)  # of this half of the progress, and of that of the edges
        refining = replace(
            callbacks, on_progress=lambda at, of, note: callbacks.on_progress(at * steps // of, 2 * steps, note)
        )
        shown = refine(reading, forward, shown, config.errors, refining)
        names = {run.config.layer: run.name for run in runs}
        value, at = float(value_B.detach()[0]), reading.prompt_tokens - 1
        nodes = [CircuitNode("target", at, None, None, None, None, value, "gradient")]
        nodes += (CircuitNode("expert", run=names[it.layer], **asdict(it)) for it in shown)
        edges = _edges(forward, shown, nodes, callbacks)
    texts = token_texts(language_model.tokenizer, list(reading.fed_ids))
    total = sum(abs(expert.predicted) for expert in active)
    logits_V = forward.logits_BSV[0, 0].detach()
    probabilities_V, above_V = logits_V.softmax(-1), logits_V - logits_V.mean()
    top = logits_V.topk(min(NUM_CANDIDATES, len(logits_V)))
    best = single_texts(language_model, set(top.indices.tolist()))
    return Circuit(
        runs=tuple(run.name for run in runs),
        layers=tuple(run.config.layer for run in runs),
        tokens=tuple(
            CircuitToken(id, text, start=index == 0)
            for index, (id, text) in enumerate(zip(reading.fed_ids, texts, strict=True))
        ),
        prompt_tokens=reading.prompt_tokens,
        target=reading.target,
        label=_label(language_model, reading.target),
        value=value,
        candidates=tuple(
            NextToken(id, best[id], float(probabilities_V[id]), float(above_V[id])) for id in top.indices.tolist()
        ),
        nodes=tuple(nodes),
        edges=edges,
        active=sum(expert.position > 0 for expert in active),
        retained=sum(abs(expert.predicted) for expert in active[: config.nodes]) / total if total else 0.0,
    )


def read_circuit(
    language_model: LanguageModel, runs: Sequence[Run], config: CircuitConfig, ids: Sequence[int] | None = None
) -> Reading:
    """Read the prompt and the target of a circuit. Arguments and errors as ``trace``."""
    if not runs:
        raise UserError("A circuit needs at least one run.")
    ids = text_ids(language_model, runs, config.prompt if ids is None else ids)
    last = len(ids) - 1 if config.position is None else config.position
    if last >= len(ids):
        raise UserError(f"Unknown token position {last}. The text has tokens 0 to {len(ids) - 1}.")
    reading = read_target(language_model, ids[: last + 1], config.target, runs)
    if len(reading.fed_ids) > MOST_TOKENS:
        raise TooLongError(
            f"The circuit spans {len(reading.fed_ids):,} tokens. The maximum is {MOST_TOKENS:,}. Shorten the text or "
            "choose an earlier token."
        )
    return reading


def active_experts(forward: Forward, value_1: Tensor) -> list[ActiveExpert]:
    """All active experts of a prompt with their predicted effects on a value of its pass."""
    found = []
    for layer, gradient_TO in forward.gradients(value_1).items():
        products_TK, routing = expert_products(forward.sparse_layers[layer], forward.input_of(layer), gradient_TO)
        positions_P, columns_P = (routing.activations_TK > 0).nonzero(as_tuple=True)
        values = (routing.indices_TK, routing.activations_TK, -products_TK)
        columns = (positions_P, *(values_TK[positions_P, columns_P] for values_TK in values))
        found += [ActiveExpert(layer, *row) for row in zip(*(it.tolist() for it in columns), strict=True)]
    return found


def contribution(forward: Forward, expert: ActiveExpert) -> Tensor:
    """Addition of an active expert to its MLP's output on its token, [O]."""
    sparse_layer = forward.sparse_layers[expert.layer]
    x_1I = forward.input_of(expert.layer)[expert.position].unsqueeze(0)
    activation_11 = torch.tensor([[expert.activation]], device=x_1I.device)
    one = Routing(activation_11, torch.tensor([[expert.expert]], device=x_1I.device))
    return sparse_layer.contribution(sparse_layer.dense_output(x_1I), one)[0].detach()


def refine(
    reading: Reading, forward: Forward, experts: Sequence[ActiveExpert], errors: Errors, callbacks: Callbacks
) -> list[ActiveExpert]:
    """Predict the effects of experts with a large step or effect again, from the mean gradient along the way."""
    removed: list[tuple[ActiveExpert, Tensor]] = []
    for it in experts:
        part_O = contribution(forward, it)
        output_O = forward.outputs_BTO[it.layer][0, it.position].detach().float()
        if abs(it.predicted) > LARGE_EFFECT or part_O.norm() > LARGE_STEP * output_O.norm():
            removed.append((it, part_O))
    slopes: list[float] = []
    points = [(it, part_O, share) for it, part_O in removed for share in PATH]
    rows = max(1, min(PATH_ROWS, PATH_TOKENS // len(reading.fed_ids)))
    for first in range(0, len(points), rows):
        callbacks.check_cancelled()
        callbacks.on_progress(first, len(points), "")
        slopes += _slopes(reading, forward.sparse_layers, points[first : first + rows], errors)
    averaged = {
        it: sum(slopes[index * len(PATH) : (index + 1) * len(PATH)]) / len(PATH)
        for index, (it, _) in enumerate(removed)
    }
    return [replace(it, predicted=averaged[it], method="path") if it in averaged else it for it in experts]


def _slopes(
    reading: Reading, sparse_layers: Layers, points: Sequence[tuple[ActiveExpert, Tensor, float]], errors: Errors
) -> list[float]:
    """Derivative of the target along each expert's removal, where a share of its contribution is removed."""

    def change(layer: int, layer_pass: LayerPass) -> Tensor | None:
        if all(it.layer != layer for it, _, _ in points):
            return None
        tokens = layer_pass.x_STI.shape[1]
        added_PO = points[0][1].new_zeros(len(points) * tokens, len(points[0][1]))
        for row, (it, part_O, share) in enumerate(points):
            if it.layer == layer:
                added_PO[row * tokens + it.position] = -share * part_O
        return added_PO

    functions = edited_mlps(sparse_layers, errors, change)
    forward = differentiable_forward(reading, sparse_layers, functions, len(points))
    layers = sorted({it.layer for it, _, _ in points})
    at_layers = gradients_of(reading.value(forward), [forward.outputs_BTO[it] for it in layers])
    gradients = dict(zip(layers, at_layers, strict=True))
    return [-float(gradients[it.layer][row, it.position] @ part_O) for row, (it, part_O, _) in enumerate(points)]


def _edges(
    forward: Forward, shown: Sequence[ActiveExpert], nodes: Sequence[CircuitNode], callbacks: Callbacks
) -> tuple[CircuitEdge, ...]:
    """Edges of all nodes to the target, and the strongest edges to shown experts.

    An edge counts by its predicted effect on the target through the expert: the share of the activation that it changes
    times the expert's own effect.
    """
    to_target = [CircuitEdge(index, 0, node.predicted, leaves_top_k=False) for index, node in enumerate(nodes) if index]
    weighted: list[tuple[float, CircuitEdge]] = []
    for number, end in enumerate(shown, start=1):
        callbacks.check_cancelled()
        callbacks.on_progress(len(shown) + number - 1, 2 * len(shown), "")
        before = ((index, it) for index, it in enumerate(shown, start=1) if it.layer < end.layer)
        sources = [(index, it) for index, it in before if it.position <= end.position]
        if not sources:
            continue
        gradients = forward.gradients(forward.score(end.layer, end.position, end.expert))
        margin = _margin(forward, end)
        for source, it in sources:
            if change := -float(gradients[it.layer][it.position] @ contribution(forward, it)):
                weight = abs(change / end.activation * end.predicted)
                weighted.append((weight, CircuitEdge(source, number, change, -change >= margin)))
    weighted.sort(key=lambda pair: -pair[0])
    total, reached = sum(weight for weight, _ in weighted), 0.0
    kept = []
    for weight, edge in weighted:
        if reached >= EDGE_SHARE * total:
            break
        kept.append(edge)
        reached += weight
    return (*to_target, *kept)


def _margin(forward: Forward, expert: ActiveExpert) -> float:
    """How far an active expert's score can fall before it is inactive: to 0, or to the strongest inactive score."""
    sparse_layer = forward.sparse_layers[expert.layer]
    if not method_traits(sparse_layer.method).has_top_k or sparse_layer.config.k >= sparse_layer.config.num_experts:
        return expert.activation
    x_1I = forward.input_of(expert.layer)[expert.position].unsqueeze(0)
    scores_1K, _ = sparse_layer.gate.choose(x_1I, sparse_layer.config.k + 1)
    return expert.activation - max(0.0, float(scores_1K[0, -1]))


def _label(language_model: LanguageModel, target: Target) -> str:
    spaces = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})
    tokens = target_tokens(target)
    texts = {token: text.translate(spaces) for token, text in single_texts(language_model, set(tokens)).items()}
    match target:
        case TokenTarget(token=int(token)):
            return f"logit of {texts[token]}"
        case DifferenceTarget(token=token, other=other):
            return f"logit of {texts[token]} minus that of {texts[other]}"
        case SetTarget():
            return f"log-probability of {' or '.join(texts[token] for token in tokens)}"
        case ContinuationTarget(text=text):
            return f"log-probability of the continuation {text.translate(spaces)}"
        case ExpertTarget(run=run, expert=expert):
            return f"activation of expert {expert} of {run}"
        case _:
            raise AssertionError(target)
