"""Routing of a text, its measured effects, experts that are active on a passage, and circuits."""

from typing import Annotated, Literal

from pydantic import Field

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import Labelled, TokenCount
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.results import MIN_DOCUMENTS, ExpertEffect
from mxd.trainer.config.analysis import Errors, Target, TokenTarget
from mxd.trainer.config.base import Size
from mxd.trainer.config.layer import Method
from mxd.trainer.inference.results import RoutedToken
from mxd.trainer.language_model.tokenizer import Turn


class PromptText(Schema):
    """A text, or chat turns formatted with the tokenizer's chat template."""

    text: Annotated[str, Field(max_length=200_000)] = ""
    turns: Annotated[tuple[Turn, ...], Field(max_length=200)] = ()
    """Chat turns; used instead of the text if not empty."""


class RoutingRequest(PromptText):
    """A text to route."""

    k: Size | None = None
    """Number of experts per token in every run, strongest first. Default: each run's K."""


class JointRequest(RoutingRequest):
    """A text to route through one run or several."""

    others: Annotated[tuple[str, ...], Field(max_length=7)] = ()
    """Names of runs whose layers replace the MLPs of other layers at the same time."""


class RoutedExpertInfo(Labelled):
    """Label and statistics of an expert."""

    density: float | None
    """Share of indexed tokens on which the expert is active; null without an index."""
    max_activation: float | None
    """Largest gate activation in the index; null without an index."""
    top_tokens: tuple[str, ...]
    """Tokens on which it is active most often."""


class LayerRouting(Schema):
    """The active experts of a run on each token of a text."""

    run: str
    tokens: tuple[RoutedToken, ...]
    experts: dict[int, RoutedExpertInfo]
    """Labels and statistics of all experts in ``tokens``, by id."""
    max_tokens: int
    """Maximum number of tokens that the server routes."""


class RoutingResponse(LayerRouting):
    """Routing of a text through a run and, in the same forward pass, through others."""

    others: tuple[LayerRouting, ...]
    """Routings of the other runs, in the requested order."""


class EffectsRequest(RoutingRequest):
    """A token of a text."""

    position: Annotated[int, Field(ge=0)]
    """Position of the token, as in the routing of the same text; 0 is the start token."""


class EffectsResponse(Schema):
    """Direct effects on the next token, through final norm and unembedding only."""

    run: str
    position: int
    experts: tuple[ExpertEffect, ...]
    """Active experts, largest activation first."""


class LayerRun(Schema):
    """A run of another layer of the same language model, which can be routed and steered jointly."""

    name: str
    layer: int
    method: Method
    indexed: bool


class TextKind(Schema):
    """A kind of the documents of an indexed text."""

    kind: str
    documents: int
    characters: int


class TextKinds(Schema):
    """Kinds of the run's indexed text; empty if its file is not in the data folder or has no kinds."""

    text: str
    """Name of the file."""
    kinds: tuple[TextKind, ...]
    """Most documents first."""
    min_documents: int = MIN_DOCUMENTS
    """Number of documents per text from which a contrast of two texts counts documents, not sequences."""


class RunOptions(Schema):
    """Runs to combine with a run, and kinds of documents to compare in its text."""

    run: str
    layers: tuple[LayerRun, ...]
    """Compatible runs, sorted by layer."""
    chat: bool
    """True if prompts may be chat turns."""
    no_chat: str | None
    """Reason why they may not, in one sentence."""
    kinds: TextKinds | None
    """Null unless requested."""


RunNames = Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]


class CircuitRequest(PromptText):
    """A prompt to trace, and what to explain."""

    runs: RunNames
    """Names of runs for different layers of one language model."""
    target: Target = TokenTarget()
    """Target to explain. Default: the logit of the most probable next token."""
    position: Annotated[int, Field(ge=0)] | None = None
    """Position of the token before the target; 0 is the start token. Default: the last token."""
    errors: Errors = "kept"
    """kept: each layer's reconstruction error is added to its output. dropped: the layers replace the MLPs as they
    are."""
    nodes: Annotated[int, Field(ge=1, le=100)] = 20
    """Number of experts to show."""


class CircuitExpert(RoutedExpertInfo):
    """Label and statistics of an expert in a circuit."""

    promoted: str | None
    """Token that its output promotes most on its examples; null until 'mxd ablate' has measured it."""


class CircuitResponse(Schema):
    """The circuit, with the labels of its experts."""

    graph: Circuit
    experts: dict[str, dict[int, CircuitExpert]]
    """Labels and statistics of the graph's experts, by run and expert."""


class CircuitDoneEvent(Schema):
    """A traced circuit."""

    event: Literal["done"] = "done"
    result: CircuitResponse


class CircuitCheckedEvent(Schema):
    """The check of a circuit."""

    event: Literal["done"] = "done"
    result: CircuitCheck


class CircuitCheckRequest(CircuitRequest):
    """A circuit to check, with the settings that it was traced with."""

    graph: Circuit


class AblatedExpert(Schema):
    """An expert to ablate or to read on one token."""

    run: str
    """Name of its run."""
    position: Annotated[int, Field(ge=0)]
    """Position of the token; 0 is the start token."""
    expert: Annotated[int, Field(ge=0)]
    """Id of the expert."""


class CircuitEffectsRequest(CircuitRequest):
    """Groups of experts to ablate."""

    groups: Annotated[
        tuple[Annotated[tuple[AblatedExpert, ...], Field(min_length=1, max_length=64)], ...],
        Field(min_length=1, max_length=64),
    ]
    """The experts of a group are ablated jointly, each group in its own forward pass."""
    read: Annotated[tuple[AblatedExpert, ...], Field(max_length=1024)] = ()
    """Experts whose gate activations are read in each pass."""
    controls: Annotated[tuple[AblatedExpert, ...], Field(max_length=64)] = ()
    """Experts, each ablated by itself, with whose changes of the read activations those by the groups are compared."""


RankBy = Literal["mass", "lift"]
Share = Annotated[float | None, Field(ge=0, le=1)]


class PassageRequest(PromptText):
    """A passage, and how to rank the experts that are active on it."""

    position: Annotated[int | None, Field(ge=0)] = None
    """Position of the only token to consider. Default: all tokens except the start token."""
    by: RankBy = "mass"
    """mass: sum of the expert's activations on the passage. lift: share of its active tokens divided by its density,
    ranked by the lower end of its interval."""
    min_density: Share = None
    """Lower bound on density."""
    max_density: Share = None
    """Upper bound on density."""
    weak_last: bool = False
    """True: experts whose label is weak, and those without one, come after the others."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """Maximum number of experts."""


class PassageToken(Schema):
    """A token of the passage."""

    id: int
    text: str
    start: bool
    """True if this is the start token. It counts only if ``position`` selects it."""


class PassageHit(Labelled):
    """An expert that is active on the passage."""

    expert: int
    mass: float
    """Sum of its activations."""
    share: float
    """Share of the considered tokens on which it is active."""
    lift: float | None
    """``share`` divided by its density; null if it is dead or not indexed."""
    lift_low: float | None
    """Lower end of the 95 % Wilson interval of the lift. It treats the tokens of the passage as independent."""
    lift_high: float | None
    """Upper end of the interval."""
    density: float | None
    """Null without an index."""
    max_activation: float | None
    """Largest activation in the index."""
    peak: int
    """Position of the token with its largest activation."""
    active: tuple[tuple[int, float], ...]
    """(position, activation) of each considered token on which it is active."""
    top_tokens: tuple[TokenCount, ...]


class PassageResult(Schema):
    """Ranked experts of a passage."""

    run: str
    tokens: tuple[PassageToken, ...]
    hits: tuple[PassageHit, ...]
    """Best first."""
    matching: int
    """Number of active experts within the bounds."""
    firing: int
    """Number of active experts."""
