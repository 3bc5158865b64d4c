"""Data classes of a circuit and of its check, and the verdict on a checked one, the limits of whose words are
conventions. They need no PyTorch."""

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from mxd.trainer.config.analysis import Target
from mxd.trainer.utils.display import Documented, ShortRepr, fixed, signed
from mxd.trainer.utils.snapshot import UNKNOWN, Grid, Lines, Origin, Snapshot, Token, change_shade

Kind = Literal["target", "expert"]
Method = Literal["gradient", "path"]
"""How an effect was predicted. gradient: at the unchanged activations. path: mean gradient of three points on the way
to the ablated expert."""

EDGES_IN_TIP = 4
"""Effects of a node on others that are listed for it."""


class ExpertAtToken(NamedTuple):
    """An expert on one token."""

    run: str
    position: int
    expert: int


@dataclass(frozen=True)
class NextToken(Documented):
    """A candidate for the next token."""

    id: int
    text: str
    probability: float
    """Probability under the language model; with errors dropped, under the model with the layers in place of MLPs."""
    logit: float
    """Logit minus the mean over the vocabulary."""


@dataclass(frozen=True)
class CircuitToken(Documented):
    """A token of the text."""

    id: int
    text: str
    start: bool
    """True for the start token that precedes every text."""


@dataclass(frozen=True)
class CircuitNode(Documented):
    """The target, or an expert on one token."""

    kind: Kind
    position: int
    """Index of its token."""
    layer: int | None
    run: str | None
    expert: int | None
    activation: float | None
    """Gate activation of an expert."""
    predicted: float
    """Predicted change of the target when the expert is ablated on this token. For the target, its value."""
    method: Method
    """How the change was predicted."""


@dataclass(frozen=True)
class CircuitEdge(Documented):
    """Effect of a node on the score of an expert, which is its gate activation before the top-k, or on the target."""

    source: int
    """Index in ``Circuit.nodes``."""
    target: int
    """Index in ``Circuit.nodes``."""
    predicted: float
    """Predicted change of the score of ``target``, or of the circuit's target, when ``source`` is ablated."""
    leaves_top_k: bool
    """True if the predicted score is too low for the expert to stay active, so that its activation would be 0."""


@dataclass(frozen=True, slots=True)
class GroupEffect(Documented):
    """Changes when a group of experts is ablated jointly."""

    target: float
    """Change of the target."""
    activations: tuple[float, ...]
    """Change of the gate activation of each expert that is read."""
    weaker: tuple[int, ...]
    """For each of these, the number of controls that change it less."""
    clear: tuple[bool, ...]
    """True for each that changes clearly more than by the controls; false without controls."""


@dataclass(frozen=True, slots=True)
class AblationEffect(Documented):
    """Effect of ablating a group of experts on the target."""

    predicted: float
    """Sum of the predicted changes."""
    measured: float
    """Change measured in the language model."""


@dataclass(frozen=True)
class Agreement(Documented):
    """Agreement between predicted and measured changes. Values are null where they are undefined."""

    count: int
    """Number of changes compared."""
    correlation: float | None
    """Pearson correlation; null for fewer than five changes."""
    same_sign: float | None
    """Share of changes with the predicted sign."""
    slope: float | None
    """Least-squares slope of measured on predicted changes, through zero; null for fewer than five."""
    largest_miss: float | None
    """Largest absolute difference between a predicted and a measured change."""


@dataclass(frozen=True)
class Sufficiency(Documented):
    """Share of the target that remains when only the shown experts act.

    The other active experts of these layers are changed on every token but the start token. A share of 1 is the
    unchanged target, and 0 is the target without any of these layers' experts.
    """

    without_experts: float
    """Value of the target with every expert mean-ablated: replaced by the mean of the experts' output over the text."""
    mean: float
    """Value with all but the shown experts mean-ablated."""
    random_mean: float
    """Mean value over the draws in which each other expert is multiplied by a random number between 0 and 1."""
    random_worst: float
    """Value of the draw that is furthest from the unchanged target."""
    draws: int
    control: float
    """As ``mean``, for as many random active experts as are shown instead of these; mean over ``draws`` draws."""
    control_sd: float
    """Standard deviation of the control over its draws."""


@dataclass(frozen=True)
class GraphScores(Documented):
    """Scores of circuit-tracer for the graph of the shown experts, errors and tokens. An MLP without a run is an
    error."""

    replacement: float
    """Share of the influence on the target that starts at tokens rather than at errors."""
    completeness: float
    """Share of the nodes' inputs, weighted by influence, that comes from experts and tokens rather than from errors."""


@dataclass(frozen=True)
class CircuitVerdict(Documented):
    """Verdict of a check on a circuit."""

    level: Literal["good", "weak", "bad"]
    """bad: the model does not do what the circuit predicts."""
    headline: str
    """How much the shown experts explain, with the shares."""
    sentence: str
    """The same in the terms of circuits, and whether the predictions hold."""
    figures: tuple[tuple[str, str, str], ...]
    """Name, value and note of each number behind it."""
    limits: str
    """Limits of the words of the sentence."""


@dataclass(frozen=True)
class CircuitCheck(Documented):
    """Measured effects of a circuit: each node is ablated in the language model."""

    measured: tuple[float | None, ...]
    """Measured change of the target when each of ``Circuit.nodes`` is ablated; null for the target."""
    edges: tuple[float, ...]
    """Measured change for each of ``Circuit.edges``."""
    left_top_k: tuple[bool, ...]
    """For each of ``Circuit.edges``, whether its expert was no longer active."""
    experts: Agreement
    """Agreement over the experts."""
    between: Agreement
    """Agreement over the edges between experts. Changes are shares of the expert's activation."""
    joint: AblationEffect
    """All shown experts ablated together, against the sum of their predicted changes."""
    sufficiency: Sufficiency
    scores: GraphScores
    verdict: CircuitVerdict


@dataclass(frozen=True, repr=False)
class Circuit(ShortRepr):
    """The experts of a prompt with the largest predicted effects on a target, and their effects on one another."""

    runs: tuple[str, ...]
    """Names of the runs, in the order of their layers."""
    layers: tuple[int, ...]
    tokens: tuple[CircuitToken, ...]
    """Tokens that were read: the prompt up to the traced position, and all but the last token of a continuation."""
    prompt_tokens: int
    """Number of ``tokens`` before the continuation."""
    target: Target
    """The target, with the most probable token filled in."""
    label: str
    """The target as text."""
    value: float
    """Value of the target: logits for a token and a difference, nats for a set and a continuation."""
    candidates: tuple[NextToken, ...]
    """Most probable next tokens after the prompt."""
    nodes: tuple[CircuitNode, ...]
    """The target, then the experts by size of the first predicted change."""
    edges: tuple[CircuitEdge, ...]
    """Edges between nodes, by their share of the effect on the target."""
    active: int
    """Number of active experts on all tokens but the start token; those there stay when all others are ablated."""
    retained: float
    """Share of the sum of all experts' absolute predicted changes that the shown experts have."""

    @property
    def experts(self) -> tuple[ExpertAtToken, ...]:
        """Experts of the circuit, in the order of ``nodes``."""
        return tuple(
            ExpertAtToken(node.run, node.position, node.expert)
            for node in self.nodes
            if node.run is not None and node.expert is not None
        )

    def snapshot(self, check: CircuitCheck | None = None, origin: Origin = UNKNOWN) -> Snapshot:
        """The experts by layer and token, the target on top."""
        positions = sorted({node.position for node in self.nodes})
        place = {position: column for column, position in enumerate(positions)}
        largest = max((abs(node.predicted) for node in self.nodes[1:]), default=0.0) or 1.0
        boxes: defaultdict[int | None, defaultdict[int, list[Token]]] = defaultdict(lambda: defaultdict(list))
        for index, node in enumerate(self.nodes):
            measured = None if check is None else check.measured[index]
            box = self._box(index, measured, largest, origin)
            boxes[node.layer][place[node.position]].append(box)
        late_first = sorted(boxes, key=lambda layer: -inf if layer is None else -layer)
        rows = [("Next" if layer is None else f"L{layer}", "", boxes[layer]) for layer in late_first]
        prompt = [Token(token.text) for token in self.tokens if not token.start]
        note = (
            "A box is an expert on a token, and how much it supports (+) or opposes (-) the target: predicted, then "
            "measured by ablating it. An arrow: how much it raises or lowers a later expert or the target."
        )
        share = (
            f"{len(self.experts)} of {self.active:,} active experts, with {self.retained:.0%} of the predicted effects"
        )
        return Snapshot(
            f"Circuit: {self.label}",
            share
            if check is None
            else f"{check.verdict.headline} {check.verdict.sentence} "
            f"± is the SD of {check.sufficiency.draws} random sets.",
            [
                Lines("", [("Prompt", prompt)]),
                Grid("layers", [Token(self.tokens[position].text) for position in positions], rows),
            ],
            note=note,
            origin=origin,
        )

    def _box(self, index: int, measured: float | None, largest: float, origin: Origin) -> Token:
        node = self.nodes[index]
        if node.run is None or node.expert is None:
            return Token(f"{self.label} {node.predicted:.2f}", "", f"Target {self.label}: {node.predicted:.3f}")
        change = f"{-node.predicted:+.2f}" + ("" if measured is None else f", {-measured:+.2f}")
        fed = [edge for edge in self.edges if edge.source == index][:EDGES_IN_TIP]
        lines = [
            f"Layer {node.layer}, expert {origin.named(node.run, node.expert)}",
            f"Support: {change} (predicted{'' if measured is None else ', measured'})",
            *(f"→ {self._name(edge.target, origin)} {-edge.predicted:+.3f}" for edge in fed),
        ]
        named = f"{node.expert} {origin.label(node.run, node.expert)}".strip()
        shade = change_shade(-node.predicted / largest)
        return Token(f"{change} · {named}", shade, "\n".join(lines), value=node.predicted)

    def _name(self, index: int, origin: Origin) -> str:
        node = self.nodes[index]
        if node.run is None or node.expert is None:
            return self.label
        return f"L{node.layer} {origin.named(node.run, node.expert)}"

    def _repr_html_(self) -> str:
        return self.snapshot()._repr_html_()


DEGREES = ((0.8, ""), (0.65, "mostly "), (0.25, "partly "))
"""Least share of what all experts add to the target, and the word before "sufficient" or "necessary"."""
HELD = 0.9, 0.8
ROUGHLY_HELD = 0.6, 0.65
"""Least correlation and share of equal signs at which predictions hold, or hold roughly."""
CHANCE_SDS = 2
"""Standard deviations above the mean of random sets from which experts do more than those."""
SMALLEST_WHOLE = 0.05
"""Smallest change by all experts, in units of the target, whose shares are stated."""
LIMITS = (
    "Kept alone: all other experts are mean-ablated, but for those on the start token. Necessary is the share that is "
    "lost without the shown experts. "
    + ", ".join(f"{degree}sufficient or necessary from {share:.0%}" for share, degree in DEGREES).capitalize()
    + f"; never sufficient below random experts plus {CHANCE_SDS} SD. Predictions hold from r = {HELD[0]} and "
    f"{HELD[1]:.0%} in the predicted direction, roughly from {ROUGHLY_HELD[0]} and {ROUGHLY_HELD[1]:.0%}."
).replace("%", "\N{NO-BREAK SPACE}%")
NOUNS = {"token": "logit", "difference": "difference of the logits", "expert": "activation"}


def verdict_of(
    circuit: Circuit,
    experts: Agreement,
    between: Agreement,
    joint: AblationEffect,
    sufficiency: Sufficiency,
    scores: GraphScores,
) -> CircuitVerdict:
    """Judge the measurements of a circuit."""
    base, shown = sufficiency.without_experts, experts.count
    whole = circuit.value - base
    scale = whole or 1.0
    kept, lost = (sufficiency.mean - base) / scale, -joint.measured / scale
    random, deviation = (sufficiency.control - base) / scale, sufficiency.control_sd / abs(scale)
    is_beyond_chance = kept > random + CHANCE_SDS * deviation
    has_shares = abs(whole) >= SMALLEST_WHOLE
    r, same = experts.correlation or 0.0, experts.same_sign or 0.0
    holds, holds_roughly = (r >= limits[0] and same >= limits[1] for limits in (HELD, ROUGHLY_HELD))
    noun = NOUNS.get(circuit.target.kind, "log-probability")
    parts = []
    headline = f"All {circuit.active:,} active experts hardly change the {circuit.label}: there is little to explain."
    if has_shares:
        degree = _degree(kept if is_beyond_chance else 0.0)
        alone = f"carry {_percent(kept)} of it ({shown} random ones {_percent(random)} ± {fixed(100 * deviation, 0)})"
        if kept < 0:
            alone = f"{'lower' if whole > 0 else 'raise'} the {noun}"
        elif not is_beyond_chance:
            alone += ", no more than random ones"
        headline = (
            f"These {shown} experts {degree.replace('not', 'do not')}explain what all {circuit.active:,} add to the "
            f"{circuit.label} ({signed(whole)}): alone they {alone}, and without them {_percent(1 - lost)} remains."
        )
        parts.append(f"{degree}sufficient, {_degree(lost)}necessary.".capitalize())
    else:
        parts.append(f"All {circuit.active:,} active experts change the {noun} by only {signed(whole)}: no shares.")
    if not holds:
        advice = "The predictions hold only roughly" if holds_roughly else "Do not rely on the predictions"
        parts.append(f"{advice}: {_correlation(experts)}, {_percent(same)} in the predicted direction.")
    tokens = _percent(scores.replacement)
    parts.append(f"Replacement score {fixed(scores.replacement, 2)}: {tokens} of the influence starts at tokens.")
    good = holds and has_shares and is_beyond_chance and kept >= DEGREES[1][0]
    draws = sufficiency.draws
    control = f"{signed(sufficiency.control - base)} ± {fixed(sufficiency.control_sd, 2)}"
    each = f"direction of {shown}; {_correlation(experts)}, largest miss {fixed(experts.largest_miss or 0.0, 2)}"
    mean, worst = (_percent((it - base) / scale) for it in (sufficiency.random_mean, sufficiency.random_worst))
    figures = (
        (
            "Kept alone",
            signed(sufficiency.mean - base),
            f"of {signed(whole)}; random ones {control} (SD of {draws} sets)",
        ),
        ("Ablated together", signed(joint.measured), f"sum of the predictions {signed(joint.predicted)}"),
        ("Completeness", fixed(scores.completeness, 2), "share of the inputs that are not errors"),
        ("Single experts", f"{_percent(same)} as predicted", each),
        ("Edges", _correlation(between), f"{between.count} between experts"),
        ("Others at random strengths", mean, f"worst of {draws} draws {worst}"),
    )
    return CircuitVerdict(
        "good" if good else "weak" if holds_roughly else "bad", headline, " ".join(parts), figures, LIMITS
    )


def _degree(share: float) -> str:
    return next((word for least, word in DEGREES if share >= least), "not ")


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 0)}\N{NO-BREAK SPACE}%"


def _correlation(found: Agreement) -> str:
    return "too few for r" if found.correlation is None else f"r = {fixed(found.correlation, 2)}"
