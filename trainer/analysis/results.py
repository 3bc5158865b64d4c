"""Results about experts, contrasts of texts and recurrence in other runs: one schema for Python, the command line and
HTTP, without PyTorch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self, get_args

from pydantic import computed_field
from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from mxd.trainer.config.steering import Edit
from mxd.trainer.storage.database.tables import RecurrenceRecord
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.display import Documented, ShortRepr, listed, signed


@dataclass(frozen=True, slots=True)
class TokenEffect(Documented):
    """Effect of an expert on the probability of one token."""

    id: int
    text: str
    change: float
    """Log-probability with the expert's output minus log-probability without it, in nats."""


@dataclass(frozen=True)
class ExpertEffect(Documented):
    """Active expert and the next tokens that it promotes and suppresses most."""

    expert: int
    activation: float
    """Gate activation."""
    promoted: tuple[TokenEffect, ...]
    """Largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Most negative change first."""


@dataclass(frozen=True)
class EditEffect(Documented):
    """Measured effect of some edits on the wish of a search, and their price."""

    change: float
    """Change of the wish: log-probability of the wanted texts minus that of the unwanted ones, in nats, averaged over
    the prompts."""
    alone: float
    """Change of the logarithm of ``probability``, in nats."""
    probability: float
    """Probability of the wanted texts or, without any, of no unwanted one, averaged over the prompts."""
    price: float
    """KL divergence of the next-token distribution from the original one on unrelated text, in nats per token."""
    random_price: float
    """Mean price of two random experts of the same runs at the same strengths."""
    is_costly: bool
    """True from twice the price of random experts."""
    held_out_change: float | None
    """Mean change of the wish over the other texts; None without them."""
    held_out_rises: int
    """Number of these texts on which the change is above 0 and above that of every random expert."""


@dataclass(frozen=True)
class EditEffects(Documented):
    """Measured effects of several groups of edits, beside random experts at the same strengths."""

    effects: tuple[EditEffect, ...]
    held_out: tuple[str, ...]
    """Other texts, in which a wanted text follows. The search did not use them."""
    random_experts: int
    """Number of random experts, two per edit."""
    random_change: float
    """Largest change of the wish by one of them."""
    random_held_out_change: float | None
    """Largest mean change over the other texts by one of them; None without these texts."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def answer(self) -> str:
        """How many edits work on the other texts, and how many of them are not costly."""
        if self.random_held_out_change is None:
            return "Not checked on other texts: the run's index stores none with a wanted text."
        texts = len(self.held_out)
        costly = [effect.is_costly for effect in self.effects if 2 * effect.held_out_rises > texts]
        rising, cheap = len(costly), costly.count(False)
        return (
            f"{rising or 'None'} of these {len(self.effects)} {'work' if rising > 1 else 'works'} better than every "
            f"random expert on most of {texts} stored texts that continue so and that the search did not use"
            + (f"; {cheap or 'none'} of them {'is' if cheap == 1 else 'are'} not costly." if rising else ".")
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def comparison(self) -> str:
        """The reach of random experts, and the order of ``best_first``."""
        at_most = f"at most {signed(self.random_change, 2)} nats"
        random = f"{self.random_experts} random experts at these strengths: {at_most}"
        if self.random_held_out_change is None:
            return f"{random}. Order: change after the prompt."
        held_out = f"{signed(self.random_held_out_change, 2)} on those texts. Order: change on those texts."
        return f"{random} after this prompt, {held_out}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def best_first(self) -> tuple[int, ...]:
        """Indices of the edits: largest change on the other texts first, after the prompt without these texts. Those
        that lower the wanted text, and the unwanted one even more, are last."""
        by = [each.change if each.held_out_change is None else each.held_out_change for each in self.effects]
        return tuple(sorted(range(len(by)), key=lambda n: (self.effects[n].alone < 0, -by[n])))


@dataclass(frozen=True)
class SearchColumn(Documented):
    """A column of a search by effect, on the page and on the command line."""

    key: Literal["strength", "held_out", "rises", "change", "alone", "probability", "price"]
    title: str
    unit: str


SEARCH_COLUMNS = (
    SearchColumn("strength", "Strength", ""),
    SearchColumn("held_out", "Other texts", "nats"),
    SearchColumn("rises", "Above random", "texts"),
    SearchColumn("change", "This prompt", "nats"),
    SearchColumn("alone", "Wanted alone", "nats"),
    SearchColumn("probability", "Probability", "%"),
    SearchColumn("price", "Price", "× random"),
)
"""``alone`` is only for searches with wanted and unwanted texts."""


AbilityKind = Literal["facts", "arithmetic", "grammar"]
COSTLY = 2
"""KL divergence of edits relative to that of random experts from which they are costly."""


@dataclass(frozen=True)
class PriceOnText(Documented):
    """Changes that edits make on unrelated text."""

    kl: float
    """KL divergence of the next-token distribution from the original one, in nats per token."""
    loss_increase: float
    """Loss with the edits minus loss without them, in nats per token."""
    kl_error: float
    """Standard error of the divergence over the tokens."""
    loss_error: float
    """Standard error of the loss increase over the tokens."""


@dataclass(frozen=True)
class Ability(Documented):
    """Share of the items of the ability test whose right continuation is more probable than the wrong one."""

    all: float
    facts: float
    arithmetic: float
    grammar: float


def _percent(ability: Ability) -> str:
    return f"{100 * ability.all:.1f} %"


@dataclass(frozen=True)
class EditPrice(Documented):
    """Price of some edits that are made on every token."""

    edits: PriceOnText
    """The edits on unrelated text."""
    random: PriceOnText
    """The same edits of random experts of the same runs; mean of two draws."""
    items: int
    """Number of items of the ability test."""
    original_ability: Ability
    """Without edits."""
    ability: Ability
    """With the edits."""
    random_ability: Ability
    """With the same edits of random experts; mean of two draws."""
    ability_error: float
    """Standard error over the items of the change by the edits."""
    difference_error: float | None = None
    """Standard error over the items of the paired difference to random experts. Null if an earlier version measured
    it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_costly(self) -> bool:
        """True from twice the KL of random experts, or with a loss of ability that is clearly above theirs."""
        return self.edits.kl >= COSTLY * self.random.kl or self._is_lost

    @computed_field  # type: ignore[prop-decorator]
    @property
    def figures(self) -> str:
        """KL divergence and ability relative to random experts, with two standard errors."""
        relative = [2 * text.kl_error / max(text.kl, 1e-6) for text in (self.edits, self.random)]
        interval = math.hypot(*relative) * self.edits.kl / max(self.random.kl, 1e-6)
        own = "" if self.difference_error is not None else " (± of the edits alone)"
        points = f"{signed(-100 * self._lost, 1)} ± {200 * self._error_of_loss:.1f} points against random{own}"
        kl = f"KL {self._times_random} ± {interval:.1f} × random"
        # Lines break between both only.
        return ", ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in (kl, f"ability {points}"))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ability_parts(self) -> str:
        """Shares of solved items, and the difference to random experts by kind of item, in two sentences."""
        own, random = self.ability, self.random_ability
        kinds = {kind: getattr(own, kind) - getattr(random, kind) for kind in get_args(AbilityKind)}
        parts = listed([f"{kind} {signed(100 * change, 1)}" for kind, change in kinds.items()])
        return (
            f"Of {self.items} items the original model solves {_percent(self.original_ability)}, the edited one "
            f"{_percent(own)} and random experts {_percent(random)}. Points against random: {parts}."
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """Effects on other text and on ability, as a sentence. Clear: above two standard errors."""
        is_clear = abs(self.edits.kl - self.random.kl) > 2 * self.edits.kl_error
        is_less = is_clear and self.edits.kl < self.random.kl
        changes = "Costly: changes" if self.is_costly else "Cheap: changes" if is_less else "Changes"
        above = f"{self._times_random} × as much as" if is_clear else "about as much as"
        own = " by the edits alone" if self.difference_error is None else ""
        ability = (
            f"and loses {100 * self._lost:.1f} points more of ability (± {200 * self._error_of_loss:.1f}{own})"
            if self._is_lost
            else "without a clearly larger loss of ability"
        )
        return f"{changes} other text {'less than' if is_less else above} random experts, {ability}."

    @property
    def _lost(self) -> float:
        """Loss of ability beyond that of random experts."""
        return self.random_ability.all - self.ability.all

    @property
    def _error_of_loss(self) -> float:
        return self.ability_error if self.difference_error is None else self.difference_error

    @property
    def _is_lost(self) -> bool:
        return self._lost > 2 * self._error_of_loss

    @property
    def _times_random(self) -> str:
        return f"{self.edits.kl / max(self.random.kl, 1e-6):.1f}"


@dataclass(frozen=True)
class FoundExpert(Documented):
    """An expert with a large predicted effect on the wish, relative to its predicted price."""

    edit: Edit
    """The edit, with the suggested strength."""
    per_unit: float
    """Change of the wish per unit, for small strengths, in nats: gradient times the expert's output."""
    predicted: float
    """Predicted change of the wish by the edit, in nats."""
    predicted_price: float
    """Predicted price of the edit, to second order, in nats per token."""
    change: float
    """Measured change of the wish by the edit, in nats."""
    probability: float
    """Measured probability with the edit."""


@dataclass(frozen=True)
class FoundExperts(Documented):
    """Result of a search by effect."""

    wish: float
    """The wish without edits: log-probability of the wanted texts minus that of the unwanted ones, in nats."""
    probability: float
    """Probability of the wanted texts or, without any, of no unwanted one, averaged over the prompts."""
    experts: tuple[FoundExpert, ...]
    """Largest measured change first."""


def stronger_than(own: float, others: Sequence[float]) -> tuple[int, int, bool]:
    """Return how many others an effect exceeds, how many it has to, 95 %, and whether it does; false without others.
    This rule says everywhere what is more than chance."""
    weaker, needed = sum(each < own for each in others), math.ceil(0.95 * len(others))
    return weaker, needed, 0 < needed <= weaker


@dataclass(frozen=True)
class Controls(Documented):
    """The largest changes of an expert beside those of random experts of similar density, in its place: on the same
    tokens, with as many units of activation."""

    experts: tuple[int, ...]
    """Random experts; empty if no other expert is active."""
    needed: int
    """Number of them whose largest rise, or fall, the expert's has to exceed, 95 %."""
    weaker: int
    """Number of them whose largest rise it exceeds."""
    exceeded: bool
    """True if these are enough; false without controls."""
    fall_exceeded: bool
    """True if its largest fall exceeds that of enough of them."""
    rise: float
    """Largest rise of the ``needed`` weakest, in nats."""
    fall: float
    """Largest fall, not above 0, of as many."""
    verdict: str
    """Short phrase that names the sides that exceed them."""
    sentence: str
    """The comparison of rise and fall, and its sample."""

    @classmethod
    def compare(cls, rises: Sequence[float], falls: Sequence[float], experts: Sequence[int], examples: int) -> Self:
        """Compare the first rise and fall with the others, those of ``experts``, all of them means over examples."""
        sizes = [[abs(each) for each in changes] for changes in (rises, falls)]
        (weaker, needed, exceeded), (weaker_falls, _, fall_exceeded) = (
            stronger_than(own, others) for own, *others in sizes
        )
        rise, fall = (sorted(others)[needed - 1] if others else 0.0 for _, *others in sizes)
        only, also = ("" if enough else "only " for enough in (exceeded, fall_exceeded))
        sides = [side for side, enough in (("rise", exceeded), ("fall", fall_exceeded)) if enough]
        above = f"{'only ' * (len(sides) == 1)}largest {listed(sides)}"
        verdict = f"{above} above random" if sides else "largest changes not above random"
        sentence = (
            f"On {examples} of its strongest examples, the largest rise ({signed(rises[0])}) exceeds that of "
            f"{only}{weaker} of {len(experts)} random experts, the largest fall ({signed(falls[0])}) that of "
            f"{also}{weaker_falls}."
        )
        return cls(tuple(experts), needed, weaker, exceeded, fall_exceeded, rise, -fall, verdict, sentence)


def supported_words(changes: Mapping[str, Sequence[float]], exceeded: bool) -> str | None:
    """Return which words rise more with an expert, first, than with 95 % of the others; None if none does.
    ``exceeded``: as in ``Controls``."""
    tests = {word: stronger_than(own, others) for word, (own, *others) in changes.items()}
    words = [f"“{word}”" for word, (_, _, is_supported) in tests.items() if is_supported]
    if not words:
        return None
    fewest = min(weaker for weaker, _, is_supported in tests.values() if is_supported)
    others = len(next(iter(changes.values()))) - 1
    own = "" if exceeded else ", but its largest rise is not above random"
    return f"{listed(words)} rise{'s' * (len(words) == 1)} more than with {fewest} of {others} random experts{own}"


@dataclass(frozen=True, slots=True)
class ExpertWrites(Documented):
    """Next tokens that an expert promotes and suppresses most: its direct effect, averaged over examples."""

    expert: int
    examples: int
    """Number of examples; 0 for a dead expert."""
    promoted: tuple[TokenEffect, ...]
    """Largest change first."""
    suppressed: tuple[TokenEffect, ...]
    """Most negative change first."""
    controls: Controls
    supported_words: str | None
    """Words of the user label that rise more than with random experts, in a sentence; None if none does."""


@dataclass(frozen=True, slots=True)
class OutputDimension(Documented):
    """An output dimension and its entry in c_n."""

    dimension: int
    """Index of the output dimension."""
    scaling: float
    """Entry of c_n."""
    relative: float
    """Absolute value of the entry, relative to the dimension's root mean square over all experts."""


@dataclass(frozen=True)
class SingularDirection(Documented):
    """A right singular vector of W_n, an output direction that the expert adds with either sign."""

    share: float
    """Share of the sum of squared singular values."""
    positive_tokens: tuple[TokenEffect, ...]
    """Tokens that the direction promotes most, by the logit lens, with their logits above the mean."""
    negative_tokens: tuple[TokenEffect, ...]
    """Tokens that the opposite direction promotes most."""


@dataclass(frozen=True)
class ExpertMap(Documented):
    """Output directions and output dimensions of an expert's linear map."""

    stable_rank: float
    """‖W‖²_F / ‖W‖²₂; 1 for a map with a single output direction."""
    directions: tuple[SingularDirection, ...]
    """Leading singular directions, largest share first."""
    largest_scalings: tuple[OutputDimension, ...]
    """Output dimensions that c_n scales most; empty if c_n does not scale outputs."""
    smallest_scalings: tuple[OutputDimension, ...]
    """Output dimensions that c_n scales least; empty if c_n does not scale outputs."""
    small_scaling_share: float | None
    """Share of output dimensions scaled by less than a tenth of their root mean square over all experts."""


Unit = Literal["document", "sequence"]
SIGNIFICANT_Q = 0.05
"""Q-value up to which an expert counts as telling the texts apart."""
MIN_DOCUMENTS = 10
"""Documents per text below which sequences are the unit."""
FEW_DOCUMENTS = 30
"""Documents per text below which the test misses clear differences."""


@dataclass(frozen=True)
class ContrastExample(Documented):
    """Part of a text around the largest activation of an expert in one sequence."""

    sequence: int
    """Index of the sequence in its text."""
    position: int
    """Index into ``token_ids`` of the token with the largest activation."""
    activation: float
    """Gate activation at ``position``."""
    token_ids: tuple[int, ...]
    active: tuple[tuple[int, float, int], ...]
    """(position, activation, rank) of each active token. Rank 0 is the largest activation of all experts on it."""


@dataclass(frozen=True)
class ContrastedExpert(Documented):
    """Activation of an expert in text A and in text B."""

    expert: int
    active_a: int
    """Number of tokens of text A on which the expert is active."""
    active_b: int
    units_a: int
    """Number of documents (or sequences, see ``unit``) of text A with an active token."""
    units_b: int
    density_a: float
    """Share of the tokens of text A on which the expert is active."""
    density_b: float
    ratio: Interval
    """Density in A divided by density in B, with half an active token added to each. The 95 % interval is over
    documents."""
    activation_ratio: float | None
    """Summed activation per token in A divided by that in B; null if the expert is never active in B."""
    p_value: float
    """Two-sided probability of so large a difference if documents were assigned to the texts at random."""
    q_value: float
    """False discovery rate (Benjamini-Hochberg) of the experts with at most this p-value."""

    @property
    def is_found(self) -> bool:
        """True if the expert tells the texts apart."""
        return self.q_value <= SIGNIFICANT_Q

    @property
    def bound(self) -> float:
        """End of the ratio's interval that is nearer to 1, as a factor of at least 1; 1 if the interval includes 1."""
        return max(self.ratio.low, 1 / self.ratio.high, 1.0)

    def warning(self, unit: Unit) -> str | None:
        """Return a warning if a density rests on a single document or sequence."""
        sides = [name for name, units in (("A", self.units_a), ("B", self.units_b)) if units == 1]
        return f"only 1 {unit} in {' and '.join(sides)}" if sides else None


@dataclass(frozen=True)
class ContrastExamples(Documented):
    """Strongest examples of an expert in both texts, at most one per sequence."""

    a: tuple[ContrastExample, ...]
    b: tuple[ContrastExample, ...]


@dataclass(frozen=True)
class ContrastedText(Documented):
    """Size of one of the two texts."""

    name: str
    documents: int
    units: int
    """Number of documents or sequences that are counted as independent."""
    tokens: int
    """Number of tokens without start tokens."""


@dataclass(frozen=True)
class ChanceLevel(Documented):
    """The same comparison after random assignments of documents to the two texts."""

    shuffles: int
    mean_found: float
    """Mean number of experts with a q-value of at most 0.05."""
    most_found: int
    """Largest such number."""
    shuffles_with_any: int
    """Number of random assignments in which at least one expert was found."""
    covered: float
    """Share of the 95 % intervals that include 1, the true ratio."""


@dataclass(frozen=True, repr=False)
class Contrast(ShortRepr):
    """Experts whose activation density differs between two texts."""

    run: str
    a: ContrastedText
    b: ContrastedText
    unit: Unit
    """Unit that is counted as independent: document, or sequence if a text has too few documents."""
    num_experts: int
    min_tokens: int
    """Experts with fewer active tokens in both texts together were not tested."""
    min_units: int
    """Experts active in fewer documents of both texts together were not tested."""
    tested: int
    """Number of tested experts."""
    found_a: int
    """Number of experts that are more frequent in text A, with a q-value of at most 0.05."""
    found_b: int
    chance: ChanceLevel | None
    """Null if no random assignments were made."""
    experts: tuple[ContrastedExpert, ...]
    """Tested experts: first those found, by the end of the interval that is nearer to 1, then the others."""
    examples: dict[int, ContrastExamples]
    """Examples of the first experts of either direction, by expert."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to rely on the list: too few documents, or a control that finds too many experts."""
        found, a, b = [], self.a.units, self.b.units
        if self.unit == "sequence":
            found.append(
                f"Not reliable: a text has fewer than {MIN_DOCUMENTS} documents, so sequences are counted as "
                "independent. Those of one document are not, so the test can find too many experts, which the control "
                f"does not show. Use at least {MIN_DOCUMENTS} documents per text."
            )
        elif min(a, b) < FEW_DOCUMENTS:
            found.append(
                f"Few documents: {a:,} in A, {b:,} in B. With fewer than {FEW_DOCUMENTS} per text, the test can miss "
                "clear differences. Use more tokens per text or add documents."
            )
        if self.chance and self.chance.mean_found > SIGNIFICANT_Q * (self.found_a + self.found_b):
            found.append(
                f"Chance may explain more than {100 * SIGNIFICANT_Q:.0f} % of the list. Do not rely on it; use more "
                "documents."
            )
        return tuple(found)

    @property
    def control(self) -> str:
        """Experts found after random assignments, and how often the intervals are right; empty without them."""
        if self.chance is None:
            return ""
        mean, most = self.chance.mean_found, self.chance.most_found
        found = f"{mean:,.1f} experts found on average, {most:,} at most" if most else "no expert found"
        right = f"{100 * self.chance.covered:.1f} % of the 95 % intervals contain the true ratio of 1"
        outcome = f"{found}; {right}" if self.tested else "nothing to test"
        return f"{self.unit}s assigned to A and B at random, {self.chance.shuffles} times: {outcome}."


@dataclass(frozen=True)
class Match:
    """The expert of another run that is most similar to an expert."""

    run: str
    expert: int
    firing_cosine: float
    """Cosine of the two experts' gate activations over the text."""
    writing_cosine: float
    """Cosine of their mean outputs."""
    firing_low: float
    """Lower end of the 95 % interval of the cosine of gate activations, over sequences."""
    firing_high: float
    firing_chance: float
    """Chance level of the cosine of gate activations, for experts with as many active tokens."""
    writing_chance: float
    """Chance level of the cosine of mean outputs."""
    mutual: bool
    """True if this expert is also the best match of that one."""

    @property
    def above_chance(self) -> bool:
        """True if both cosines exceed the chance level."""
        return self.firing_cosine > self.firing_chance and self.writing_cosine > self.writing_chance

    @property
    def found(self) -> bool:
        """True if the expert was found again in the other run."""
        return self.above_chance and self.mutual


@dataclass(frozen=True)
class ExpertRecurrence:
    """An expert with enough active tokens, and its match in each other run."""

    expert: int
    active_tokens: int
    matches: tuple[Match, ...]

    @property
    def found_in(self) -> int:
        """Number of other runs in which the expert was found again."""
        return sum(match.found for match in self.matches)


@dataclass(frozen=True)
class RunRecurrence:
    """Summary of the comparison with one other run."""

    run: str
    found_again: Interval
    """Share of the measured experts that were found again; the interval is over experts."""
    above_chance: float
    """Share whose best match is above chance, mutual or not."""
    chance: float
    """Share found again if the other run's gate activations are shifted along the text."""
    firing_cosine: float
    """Median over the measured experts of the best cosine of gate activations."""
    chance_firing_cosine: float
    """The same after the shift."""
    writing_cosine: float
    """Median cosine of the mean outputs of matched experts."""
    chance_writing_cosine: float
    """Median cosine of the mean outputs of random pairs."""


@dataclass(frozen=True, repr=False)
class Recurrence(ShortRepr):
    """Result of ``mxd recurrence``."""

    run: str
    num_experts: int
    tokens: int
    min_tokens: int
    """Experts with fewer active tokens were not measured."""
    runs: tuple[RunRecurrence, ...]
    found_in_all: Interval
    """Share of the measured experts that were found again in every other run."""
    experts: tuple[ExpertRecurrence, ...]
    """The measured experts, by number."""


RECURRENCE_COMMAND = "recurrence"
"""Key of the settings of ``mxd recurrence`` among a run's measurements."""
MATCH_COLUMNS = tuple(field.name for field in fields(Match))[2:]
"""Columns of the database that are fields of a ``Match``."""


def is_found() -> ColumnElement[bool]:
    """Return the SQL form of ``Match.found``."""
    table = RecurrenceRecord
    return and_(table.mutual, table.firing_cosine > table.firing_chance, table.writing_cosine > table.writing_chance)


def stored_matches(session: Session, run_id: int, expert: int) -> tuple[Match, ...]:
    """Return the match of an expert in each other run, by name; empty if the expert was not measured."""
    table = RecurrenceRecord
    query = select(table).where(table.run_id == run_id, table.expert == expert).order_by(table.other_run)
    return tuple(
        Match(row.other_run, row.other_expert, **{name: getattr(row, name) for name in MATCH_COLUMNS})
        for row in session.scalars(query)
    )
