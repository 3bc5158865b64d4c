"""Results of routing, prediction, steering and strength sweeps: one schema for Python, ``--json`` and HTTP.

The classes need no PyTorch, so that a server can describe them before it loads a language model.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, Self

from mxd.trainer.config.steering import Edit, EditMode, SteeringConfig
from mxd.trainer.utils.display import Documented, ShortRepr
from mxd.trainer.utils.snapshot import (
    UNKNOWN,
    ChangeScale,
    Grid,
    Origin,
    Pair,
    Snapshot,
    Table,
    Token,
    activation_shade,
    change_shade,
    plain,
)

Variant = Literal["baseline", "steered"]
Reason = Literal["length", "stop", "end-of-text"]
VARIANTS: tuple[Variant, Variant] = ("baseline", "steered")
SHADED_NATS = 4.0
"""Change of the log-probability that gets the strongest shade in a snapshot."""
ROWS, EXPERTS_IN_TIP = 12, 5
"""Experts of a snapshot's heat map, and experts listed for one token."""
TITLE = 120
"""Characters of a text in the title of its snapshot."""


@dataclass(frozen=True, slots=True)
class RoutedExpert(Documented):
    """An expert that is active on a token."""

    expert: int
    activation: float
    """Gate activation."""
    share: float
    """Share of the summed L2 norms of all active experts' contributions on this token."""


@dataclass(frozen=True, slots=True)
class RoutedToken(Documented):
    """One token of a text with its active experts."""

    id: int
    text: str
    start: bool
    """True if this is the start token, which also precedes every document in training."""
    experts: tuple[RoutedExpert, ...]
    """Active experts in descending order of activation."""


@dataclass(frozen=True, repr=False)
class Routing(ShortRepr):
    """The routing of a text through one run."""

    run: str
    tokens: tuple[RoutedToken, ...]

    def strongest(self, count: int = 8) -> tuple[int, ...]:
        """Experts with the largest sum of shares over the text, without the start token."""
        shares: defaultdict[int, float] = defaultdict(float)
        for token in self.tokens:
            for routed in () if token.start else token.experts:
                shares[routed.expert] += routed.share
        return tuple(sorted(shares, key=lambda expert: -shares[expert])[:count])

    def snapshot(self, origin: Origin = UNKNOWN, rows: Sequence[int] = ()) -> Snapshot:
        """A heat map of the experts ``rows``, by default the strongest ones, over the tokens of the text."""
        tokens = [token for token in self.tokens if not token.start]
        experts = tuple(rows) or self.strongest(ROWS)
        shown = [{each.expert: each for each in token.experts if each.expert in experts} for token in tokens]
        largest = max((each.activation for cells in shown for each in cells.values()), default=1.0)
        cells_of = []
        for expert in experts:
            named, cells = origin.named(self.run, expert), dict[int, tuple[Token, ...]]()
            for place, routed in ((at, found[expert]) for at, found in enumerate(shown) if expert in found):
                value, share = routed.activation, f"{routed.share:.1%} of output norm"
                tip = f"{plain(tokens[place].text)}\nExpert {named}\nActivation {value:.4f}\n{share}"
                cells[place] = (Token(f"{value:.1f}", activation_shade(value / largest), tip, value=value),)
            cells_of.append((str(expert), origin.label(self.run, expert), cells))
        columns = []
        for token in tokens:
            first = token.experts[:EXPERTS_IN_TIP]
            lines = [f"{each.activation:.2f}  {origin.named(self.run, each.expert)}" for each in first]
            columns.append(Token(token.text, tip="\n".join([plain(token.text), *lines])))
        text = "".join(token.text for token in tokens)
        chosen = "" if rows else "strongest "
        subtitle = f"{len(experts)} {chosen}experts of {self.run} on {len(tokens)} tokens"
        note = (
            "Columns are tokens, rows are experts, and numbers are gate activations. "
            "Stronger colours mean stronger activations."
        )
        title = f"“{text if len(text) <= TITLE else text[:TITLE] + '…'}”"
        return Snapshot(title, subtitle, [Grid("heat", columns, cells_of)], note=note, origin=origin)

    def _repr_html_(self) -> str:
        return self.snapshot()._repr_html_()


@dataclass(frozen=True, slots=True)
class Prediction(Documented):
    """A candidate for the next token."""

    id: int
    text: str
    original: float
    """Probability with the original MLP."""
    replaced: float
    """Probability with the MLP replaced by the run's layer."""


@dataclass(frozen=True, slots=True)
class PredictedToken(Documented):
    """The next-token distributions after one token of the text."""

    kl: float
    """KL divergence from the original next-token distribution to that with the sparse layer, in nats."""
    zeroed_kl: float
    """KL divergence from the original next-token distribution to that without the MLP (output zero), in nats."""
    predictions: tuple[Prediction, ...]
    """Union of the most probable next tokens of both, in descending order of the original probability."""


@dataclass(frozen=True)
class Predictions(Documented):
    """Next-token predictions after each token of a text, for one run."""

    run: str
    tokens: tuple[PredictedToken, ...]
    """One entry per token of the routing of the same text."""


@dataclass(frozen=True, slots=True)
class Alternative(Documented):
    """A probable next token."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class StartEvent(Documented):
    """First event of a generation: the prompt has been computed."""

    prompt_tokens: int
    """Number of tokens of the prompt."""
    max_tokens: int
    """Maximum number of new tokens per continuation."""
    event: Literal["start"] = "start"


@dataclass(frozen=True)
class TokenEvent(Documented):
    """One new token of one variant."""

    variant: Variant
    sample: int
    """Index of the continuation within the variant."""
    position: int
    """Index among the new tokens, from 0."""
    id: int
    text: str
    """New characters; empty if a character continues in the next token."""
    probability: float
    """Probability under the token's own variant, before temperature and other sampling settings."""
    delta_log_probability: float
    """Log-probability with the edits minus without, for this token after the same text, in nats."""
    kl: float
    """KL divergence from this variant's next-token distribution to the other's after the same text, in nats."""
    alternatives: tuple[Alternative, ...]
    """Five most probable tokens under this variant."""
    other_alternatives: tuple[Alternative, ...]
    """Five most probable tokens under the other variant."""
    experts: tuple[RoutedExpert, ...]
    """Active experts of the steered run on the previous token, which predicts this one; before edits, at most eight."""
    reason: Reason | None
    """Reason why the text ended with this token; null while it grows."""
    event: Literal["token"] = "token"

    @property
    def original_loss(self) -> float:
        """Loss of the token without edits, in nats."""
        return self.delta_log_probability * (self.variant == "steered") - math.log(max(self.probability, 1e-300))


MAX_PERPLEXITY_RATIO = 2.0
"""Largest perplexity, relative to the baseline texts', at which a text still counts as fluent."""
SMALL_KL = 0.04
"""Mean KL divergence below which edits hardly change the predictions, in nats per token."""
REPEATED = 4
"""Tokens of the sequences whose repetition is counted."""
MAX_REPEATED_SHARE = 1 / 3
"""Largest share of repeated sequences at which a text does not count as repetitive."""


@dataclass(frozen=True)
class SteeringFigures(Documented):
    """Effect and fluency of the steered texts of a generation."""

    texts: int
    """Number of steered texts."""
    kl: float
    """KL divergence from the steered to the baseline next-token distribution, in nats per token of the texts."""
    kl_error: float | None
    """Standard error over the texts; null for a single one."""
    perplexity_ratio: float
    """Perplexity of the steered texts without edits, relative to the baseline texts'; high for broken text."""
    perplexity_error: float | None
    """Standard error of its natural logarithm over pairs of texts with one seed; null for a single pair."""
    flaws: tuple[str, ...]
    """Flaw of each steered text that is not fluent or repeats itself; empty for the others."""
    is_small: bool = False
    """True if the KL divergence is so small that the predictions hardly change."""

    @classmethod
    def of_tokens(cls, tokens: Iterable[TokenEvent]) -> Self | None:
        """Measure the texts of a generation; None without texts of both variants."""
        by_text: defaultdict[tuple[Variant, int], list[TokenEvent]] = defaultdict(list)
        for token in tokens:
            by_text[token.variant, token.sample].append(token)
        samples = sorted({sample for _, sample in by_text})
        pairs = [tuple(by_text[variant, sample] for variant in VARIANTS) for sample in samples]
        if not pairs or not all(map(all, pairs)):
            return None
        original, steered = ([token for text in each for token in text] for each in zip(*pairs, strict=True))
        baseline_loss, loss = (fmean(token.original_loss for token in each) for each in (original, steered))
        kl = fmean(token.kl for token in steered)
        changes = [fmean(t.original_loss for t in new) - fmean(t.original_loss for t in old) for old, new in pairs]
        return cls(
            texts=len(pairs),
            kl=kl,
            kl_error=_error([fmean(token.kl for token in text) for _, text in pairs]),
            perplexity_ratio=math.exp(min(loss - baseline_loss, 50.0)),
            perplexity_error=_error(changes),
            flaws=tuple(_flaw(old, new, baseline_loss) for old, new in pairs),
            is_small=kl < SMALL_KL,
        )


def _error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _flaw(baseline: Sequence[TokenEvent], steered: Sequence[TokenEvent], baseline_loss: float) -> str:
    ratio = math.exp(min(fmean(token.original_loss for token in steered) - baseline_loss, 50.0))
    shares = []
    for text in (steered, baseline):
        ids = [token.id for token in text]
        sequences = [tuple(ids[start : start + REPEATED]) for start in range(len(ids) - REPEATED + 1)]
        shares.append(1 - len(set(sequences)) / len(sequences) if sequences else 0.0)
    repeated, usual = shares
    found = []
    if ratio > MAX_PERPLEXITY_RATIO:
        found.append(f"perplexity × {ratio:.1f} of the baseline's (fluent up to × {MAX_PERPLEXITY_RATIO:g})")
    if repeated > MAX_REPEATED_SHARE:
        found.append(f"{repeated:.0%} of its sequences of {REPEATED} tokens are repetitions (baseline {usual:.0%})")
    return f"Less fluent: {' and '.join(found)}." if found else ""


@dataclass(frozen=True)
class DoneEvent(Documented):
    """Last event of a generation: every text has ended."""

    baseline_reason: Reason
    """Reason why the first baseline sample ended."""
    steered_reason: Reason
    """Reason why the first steered sample ended."""
    tokens: int
    """Number of new tokens of all texts."""
    seconds: float
    figures: SteeringFigures | None = None
    """Effect and fluency of the steered texts; null without baseline texts."""
    event: Literal["done"] = "done"


SteeringStep = StartEvent | TokenEvent | DoneEvent


@dataclass(frozen=True)
class Continuation(Documented):
    """One sample of one variant, without the prompt."""

    text: str
    reason: Reason
    """Reason why the text ended."""
    tokens: tuple[TokenEvent, ...]

    @classmethod
    def from_tokens(cls, tokens: Iterable[TokenEvent]) -> Self:
        """Join the tokens of a sample that has ended."""
        tokens = tuple(tokens)
        return cls("".join(token.text for token in tokens), tokens[-1].reason or "length", tokens)


@dataclass(frozen=True, repr=False)
class SteeredGeneration(ShortRepr):
    """The continuations of a prompt without edits (baseline) and with them (steered)."""

    run: str
    """Name of the steered run."""
    prompt: str
    baseline: tuple[Continuation, ...]
    """One continuation per sample."""
    steered: tuple[Continuation, ...]
    """One continuation per sample."""
    changed_tokens: int
    """Number of positions at which baseline and steered sample differ."""
    kl: float
    """KL divergence from the steered to the baseline next-token distribution, in nats per token of the steered text."""
    seconds: float

    @classmethod
    def collect(cls, run: str, prompt: str, steps: Iterable[SteeringStep]) -> Self:
        """Collect the events of a generation, which runs to its end."""
        samples: defaultdict[tuple[Variant, int], list[TokenEvent]] = defaultdict(list)
        seconds = 0.0
        for step in steps:
            if isinstance(step, TokenEvent):
                samples[step.variant, step.sample].append(step)
            elif isinstance(step, DoneEvent):
                seconds = step.seconds
        baseline, steered = (
            tuple(Continuation.from_tokens(samples[key]) for key in sorted(samples) if key[0] == variant)
            for variant in VARIANTS
        )
        pairs = [(one.tokens, other.tokens) for one, other in zip(baseline, steered, strict=True)]
        equal = sum(a.id == b.id for pair in pairs for a, b in zip(*pair, strict=False))
        changed = sum(max(map(len, pair)) for pair in pairs) - equal
        kl = fmean(token.kl for text in steered for token in text.tokens)
        return cls(run, prompt, baseline, steered, changed, kl, seconds)

    def tokens(self, variant: Variant, sample: int = 0) -> tuple[TokenEvent, ...]:
        """New tokens of one text."""
        return self._texts(variant)[sample].tokens

    def text(self, variant: Variant, sample: int = 0) -> str:
        """One text without the prompt."""
        return self._texts(variant)[sample].text

    def _texts(self, variant: Variant) -> tuple[Continuation, ...]:
        return self.baseline if variant == "baseline" else self.steered

    def snapshot(self, edits: Sequence[Edit] = (), origin: Origin = UNKNOWN) -> Snapshot:
        """Both texts of every sample beside each other."""
        texts = [
            [[(token.text, token.delta_log_probability) for token in text.tokens] for text in self._texts(variant)]
            for variant in VARIANTS
        ]
        kl = [("KL", f"{self.kl:.2f} nats per token")]
        return steering_snapshot(self.run, [self.prompt] * 2, edits, texts, origin, kl)

    def _repr_html_(self) -> str:
        return self.snapshot()._repr_html_()


Changes = Sequence[tuple[str, float]]
"""Text of each token of a continuation, and the change of its log-probability by the edits, in nats."""


UNITS = {
    "add": "+1 adds the 99th percentile of the expert's activation.",
    "set": "= 1 sets the activation to the expert's 99th percentile.",
    "scale": "× multiplies the activation.",
}
"""Unit of the strength, by mode of an edit."""


def strength_text(mode: EditMode, strength: float) -> str:
    """Strength of an edit as pages show it: ``× 4``, ``+2.5``, ``−1``, ``= 0.8`` or ``ablated``."""
    amount = f"{strength:g}".replace("-", "−")
    added = amount if strength < 0 else f"+{amount}"
    return {"scale": f"× {amount}", "add": added, "set": f"= {amount}", "ablate": "ablated"}[mode]


def steering_facts(config: SteeringConfig) -> list[tuple[str, str]]:
    """Names and values of the settings on which generated texts depend, besides prompt, edits and seed."""
    sampling, positions = config.sampling, config.positions
    chosen = "positions " + (", ".join(map(str, positions)) or "none") if positions is not None else None
    scope = {"all": "all tokens", "generated": "generated tokens only", "prompt": "prompt tokens only"}[config.scope]
    greedy = sampling.temperature == 0
    return [
        ("temperature", "0, greedy" if greedy else f"{sampling.temperature:g}"),
        *([] if greedy else [("top-p", f"{sampling.top_p:g}")]),
        ("repetition penalty", f"{sampling.repetition_penalty:g}"),
        ("scope of edits", chosen or scope),
        ("mode", config.mode),
    ]


def steering_snapshot(
    run: str,
    prompts: Sequence[str],
    edits: Sequence[Edit],
    texts: Sequence[Sequence[Changes]],
    origin: Origin,
    facts: Sequence[tuple[str, str]] = (),
    control: Sequence[Edit] = (),
    findings: Sequence[str] = (),
) -> Snapshot:
    """Snapshot of the baseline and the steered texts, each with its prompt. Tokens are shaded by the change of their
    log-probability. ``texts`` may also have those of a ``control``. ``findings``: sentences about them."""

    def named(edits: Sequence[Edit]) -> str:
        names = []
        for edit in edits:  # such as ``46 “food” +2`` or ``7 ablated``
            name = f"{origin.named(edit.run or run, edit.expert)} {strength_text(edit.mode, edit.strength)}"
            condition = str(edit).partition("@")[2]
            names.append(f"{name} ({condition})" if condition else name)
        return " and ".join(names)

    title = f"Steered with {named(edits)}" if edits else "Baseline and steered text"

    def continued(prompt: str, text: Changes) -> list[Token]:
        shaded = ((piece, change_shade(change / SHADED_NATS), change) for piece, change in text)
        tips = (
            Token(it, shade, f"{plain(it)}\nΔ log p {change:+.3f} nats", value=change) for it, shade, change in shaded
        )
        return [Token(prompt, "prompt"), *tips]

    names = ("Baseline", "Steered", f"Control, random expert {named(control)}")
    pairs = [
        Pair([(name, continued(prompt, text)) for name, prompt, text in zip(names, prompts, pair, strict=False)])
        for pair in zip(*texts, strict=False)
    ]
    note = (
        "Both texts use the same random numbers, so all differences come from the edits. Green tokens are more "
        f"probable with them, purple ones less; the darkest by {SHADED_NATS:g} nats."
    )
    modes = {edit.mode for edit in edits}
    note = " ".join([note, *(text for mode, text in UNITS.items() if mode in modes)])
    scale = ChangeScale("Δ log p, nats", SHADED_NATS)
    found = [Table(["Measured"], [[sentence] for sentence in findings])] if findings else []
    return Snapshot(title, origin.titled(run), [*found, scale, *pairs], facts, note, origin)


@dataclass(frozen=True)
class ConceptScore(Documented):
    """How much of the texts is the expert's concept, by one measure."""

    steered: float
    control: float
    """The same measure of the texts with the control expert edited instead."""
    standard_error: float
    """Standard error of the difference of both over the samples; 0 for a single sample."""
    clear_from: float
    """Score from which it clearly exceeds the control's: by at least two standard errors, and by at least 0.01 units of
    activation or 0.01 of probability."""
    exceeds_control: bool
    """True if it reaches this score."""


@dataclass(frozen=True)
class StrengthSweepText(Documented):
    """Texts at one strength, and what the edit costs; see ``strength_sweep`` for the measures."""

    strength: float
    kl: float
    """Mean KL divergence from the steered to the baseline next-token distribution after the same text, nats/token."""
    perplexity_ratio: float
    """Perplexity of the texts without edits, relative to the baseline texts; high for broken text."""
    is_fluent: bool
    """True if this ratio is at most 2."""
    text: str
    """First steered text."""
    control_text: str
    """First text with the control expert edited instead."""
    activation: ConceptScore | None = None
    """Mean gate activation with which the original model reads the texts, in units of the expert's 99th percentile.
    Null until it is scored."""
    promoted: ConceptScore | None = None
    """Probability, with the edits, of the tokens that the expert promotes, mean over the texts' tokens. It decides
    which strength is suggested."""

    @property
    def exceeds_control(self) -> bool:
        """True if the probability of promoted tokens clearly exceeds the control's."""
        return self.promoted is not None and self.promoted.exceeds_control


@dataclass(frozen=True)
class StrengthSweepProgressEvent(Documented):
    """Progress of a strength sweep."""

    tokens: int
    """Number of tokens generated so far, over all strengths."""
    total: int
    """Maximum number of tokens."""
    queue_position: int = 0
    """Number of requests that a server handles before this one."""
    texts: tuple[StrengthSweepText, ...] = ()
    """Strengths that have texts by now, ascending, with all figures up to here."""
    suggested: float | None = None
    """Strength that the figures up to here suggest; null before half of the tokens."""
    event: Literal["progress"] = "progress"


@dataclass(frozen=True)
class StrengthSweepPoint(StrengthSweepText):
    """Effect of one strength, with both scores."""

    activation: ConceptScore
    promoted: ConceptScore


@dataclass(frozen=True)
class StrengthSweepDoneEvent(Documented):
    """The complete strength sweep."""

    points: tuple[StrengthSweepPoint, ...]
    """Points by ascending strength."""
    baseline_loss: float
    """Loss of the baseline texts without edits, in nats per token. In the mode replace, the layer replaces the MLP."""
    baseline_text: str
    """First baseline text."""
    control: int
    """Control expert: a random one of similar density, unless the request names one."""
    suggested: float | None
    """Smallest strength above the neutral one at which promoted tokens are clearly more probable than with the control,
    with a perplexity ratio of at most 2; null if there is none."""
    is_unclear: bool
    """True if more samples may suggest another strength, or one."""
    verdict: str
    """The strength to use and its rule, or why there is none, in a few sentences."""
    next_strengths: tuple[float, ...]
    """Strengths to try if none is suggested: between the last fluent one and the next, or beyond the largest."""
    limits: str
    """Limits of a clear difference and of a fluent text, in two sentences."""
    promoted: tuple[str, ...]
    """Tokens that the expert alone promotes after the prompt, strongest first."""
    seconds: float
    event: Literal["done"] = "done"


StrengthSweepStep = StrengthSweepProgressEvent | StrengthSweepDoneEvent
