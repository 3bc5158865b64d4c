"""Contrast of two texts: which experts are more active in one of them, per document.

Both texts are cut into sequences and routed. The active tokens of each expert are counted in each document, and its
strongest examples are kept.

Tokens of one document are not independent: an expert on code fires in every line of a program. The unit is therefore
the document. With m tokens and y active ones in a document, and the density p of both texts together:

- **Test.** The residuals y - p m sum to 0 over all documents. Their sum T over the documents of text A is compared with
  its distribution over all assignments of documents to the texts. The mean, variance and skewness of that distribution
  are exact; its heavier tail is that of the Pearson type III distribution with these moments (Mielke and Berry). A
  normal tail is too light if an expert is rare and one text is much smaller.
- **Interval.** The variance of the log ratio is the sum of one variance per text. Each is that of a ratio estimator,
  sum (y - p m)^2 / (sum y)^2. It is at least the dispersion of both texts together divided by the text's active tokens
  (quasi-Poisson), which matters if a text has hardly any. Half an active token is added to each text, so the ratio is
  finite.

Shapes: S sequences of a batch, L tokens of the longest, T = S * L, D documents, P (document, expert) pairs with active
tokens, N experts, E tested experts.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from mxd.trainer.analysis.indexing.build import layer_input, route_in_parts
from mxd.trainer.analysis.indexing.examples import SelectedExamples, TopExamples
from mxd.trainer.analysis.indexing.statistics import ExpertStatistics, Floats, Ints, active_pairs
from mxd.trainer.analysis.results import (
    MIN_DOCUMENTS,
    SIGNIFICANT_Q,
    ChanceLevel,
    Contrast,
    ContrastedExpert,
    ContrastedText,
    ContrastExample,
    ContrastExamples,
    Unit,
)
from mxd.trainer.config.analysis import ContrastConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.data.readers import Document, labelled_file, read_labelled
from mxd.trainer.data.sequences import documents
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.bootstrap import NORMAL_97_5, Interval
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks, Steps, completed
from mxd.trainer.utils.display import suggest

Mask = NDArray[np.bool_]
HALF_TOKEN = 0.5
SMALL_SKEWNESS = 1e-3
"""Skewness below which the normal distribution is used; the gamma function loses digits there."""


@dataclass(frozen=True)
class DocumentCounts:
    """Active tokens of each expert in each document."""

    tokens_D: Ints
    document_P: Ints
    expert_P: Ints
    count_P: Ints
    activation_P: Floats
    """Summed activation."""
    num_experts: int

    def sums(self, value_P: Floats | Ints, chosen_P: Mask | slice = slice(None)) -> Floats:
        """Sum a value of each pair over the chosen pairs of each expert, [N]."""
        weight_P = value_P.astype(np.float64)[chosen_P]
        return np.bincount(self.expert_P[chosen_P], weight_P, self.num_experts).astype(np.float64)


class TextSums(NamedTuple):
    """Sums over the documents of a text; each field [N] or a number."""

    documents: int
    tokens: float
    squared_tokens: float
    active_N: Floats
    units_N: Floats
    """Documents with an active token."""
    squares_N: Floats
    """Sum of y^2."""
    products_N: Floats
    """Sum of y m."""
    activation_N: Floats

    @classmethod
    def of(cls, counts: DocumentCounts, chosen_D: Mask) -> Self:
        tokens_D = counts.tokens_D[chosen_D].astype(np.float64)
        chosen_P, count_P = chosen_D[counts.document_P], counts.count_P
        return cls(
            documents=len(tokens_D),
            tokens=float(tokens_D.sum()),
            squared_tokens=float((tokens_D**2).sum()),
            active_N=counts.sums(count_P, chosen_P),
            units_N=counts.sums(np.ones(len(count_P)), chosen_P),
            squares_N=counts.sums(count_P**2, chosen_P),
            products_N=counts.sums(count_P * counts.tokens_D[counts.document_P], chosen_P),
            activation_N=counts.sums(counts.activation_P, chosen_P),
        )

    def variance(self) -> Floats:
        """Variance of the number of active tokens around density times tokens, [N]."""
        density_N = self.active_N / self.tokens
        # Sum of (y - p m)^2. Rounding may leave a tiny negative number.
        sum_N = self.squares_N - 2 * density_N * self.products_N + density_N**2 * self.squared_tokens
        return self.documents / max(self.documents - 1, 1) * np.maximum(sum_N, 0.0)


@dataclass(frozen=True)
class RateRatios:
    """Comparison of all experts; each field [N]."""

    a: TextSums
    b: TextSums
    log_ratio_N: Floats
    low_N: Floats
    """Lower end of the 95 % interval of the log ratio; NaN for experts that are never active."""
    high_N: Floats
    p_value_N: Floats

    def enough(self, min_tokens: int, min_units: int) -> Mask:
        """Mask of the experts with enough active tokens and documents in both texts together, [N]. Both numbers are the
        same for every assignment of documents, so the choice does not bias the test."""
        active_N, units_N = self.a.active_N + self.b.active_N, self.a.units_N + self.b.units_N
        return np.asarray((active_N >= min_tokens) & (units_N >= min_units))


def rate_ratios(counts: DocumentCounts, in_a_D: Mask) -> RateRatios:
    """Compare the documents of text A with all others. Both texts need at least one document."""
    a, b = TextSums.of(counts, in_a_D), TextSums.of(counts, ~in_a_D)
    with np.errstate(divide="ignore", invalid="ignore"):
        active_N = a.active_N + b.active_N
        density_N, dispersion_N = active_N / (a.tokens + b.tokens), (a.variance() + b.variance()) / active_N
        log_density, variance = [], []
        for text in (a, b):
            raised_N = text.active_N + HALF_TOKEN
            log_density.append(np.log(raised_N / (text.tokens + HALF_TOKEN / density_N)))
            variance.append(np.maximum(text.variance() / raised_N**2, dispersion_N / raised_N))
        log_ratio_N, error_N = log_density[0] - log_density[1], np.sqrt(variance[0] + variance[1])
        low_N, high_N = log_ratio_N - NORMAL_97_5 * error_N, log_ratio_N + NORMAL_97_5 * error_N
        return RateRatios(a, b, log_ratio_N, low_N, high_N, _p_values(counts, a, b))


def _p_values(counts: DocumentCounts, a: TextSums, b: TextSums) -> Floats:
    """Two-sided p-values of the random assignment of documents, [N]; 1 if it has no variance."""
    n, size_a, size_b = a.documents + b.documents, a.documents, b.documents
    density_N = (a.active_N + b.active_N) / (a.tokens + b.tokens)
    # Sums of the second and third power of y - p m over all documents.
    y_P, m_D, p_N = counts.count_P.astype(np.float64), counts.tokens_D.astype(np.float64), density_N
    m_P = m_D[counts.document_P]
    squared_N = counts.sums(y_P**2) - 2 * p_N * counts.sums(y_P * m_P) + p_N**2 * (m_D**2).sum()
    squared_N = np.maximum(squared_N, 0.0)
    cubed_N = counts.sums(y_P**3) - 3 * p_N * counts.sums(y_P**2 * m_P) + 3 * p_N**2 * counts.sums(y_P * m_P**2)
    cubed_N = cubed_N - p_N**3 * (m_D**3).sum()
    variance_N = size_a * size_b / (n * (n - 1)) * squared_N
    third_N = size_a * size_b * (size_b - size_a) / (n * (n - 1) * max(n - 2, 1)) * cubed_N
    z_N = (a.active_N - density_N * a.tokens) / np.sqrt(variance_N)
    skewness_N = third_N / variance_N**1.5
    is_known_N = np.isfinite(z_N) & np.isfinite(skewness_N)
    p_value_N = np.ones(len(z_N))
    p_value_N[is_known_N] = pearson3_p_values(z_N[is_known_N], skewness_N[is_known_N])
    return p_value_N


def pearson3_p_values(z: Floats, skewness: Floats) -> Floats:
    """Two-sided p-values of standardised values under the Pearson type III distribution of a given skewness.

    The light tail of that distribution ends at a finite value, which a permutation can pass. There the normal
    distribution is used, whose tail is heavier.
    """
    value, skew = torch.from_numpy(z), torch.from_numpy(skewness)
    # A negative skewness is the mirror image of a positive one.
    mirrored = torch.where(skew < 0, -value, value)
    shape = (2 / skew.abs().clamp_min(SMALL_SKEWNESS)) ** 2
    heavy_tail = torch.special.gammaincc(shape, (shape + mirrored * shape.sqrt()).clamp_min(0))
    normal_tail = torch.special.erfc(mirrored.abs() / 2**0.5) / 2
    is_normal = (mirrored < 0) | (skew.abs() < SMALL_SKEWNESS)
    p_values: Floats = (2 * torch.where(is_normal, normal_tail, heavy_tail)).clamp_max(1).numpy()
    return p_values


def q_values(p_values: Floats) -> Floats:
    """Benjamini-Hochberg q-values: the smallest false discovery rate at which each hypothesis is rejected."""
    order = np.argsort(p_values)
    scaled = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    result = np.empty(len(p_values))
    result[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return result


MIN_UNITS = 2


@dataclass(frozen=True)
class NamedText:
    """Documents of a text, and its name in tables."""

    name: str
    documents: Iterable[Document]


def text_of_file(config: TextConfig, seed: int) -> NamedText:
    """Documents of a file, a folder or a Hub dataset, in random order. Errors as ``documents``."""
    return NamedText(config.dataset, documents(config, "shuffled", seed))


def text_of_kind(config: TextConfig, kind: str, kind_column: str, seed: int) -> NamedText:
    """Documents of one kind from a file of labelled texts, in random order.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file lacks a column, or has no text of this kind.
    """
    labelled = list(read_labelled(labelled_file(config.dataset), config.column, kind_column))
    texts = [each.text for each in labelled if each.label == kind]
    if not texts:
        kinds = sorted({each.label for each in labelled})
        listed = ", ".join(kinds[:30]) + (", …" if len(kinds) > 30 else "")
        raise UserError(f"No text of kind '{kind}' in {config.dataset}.{suggest(kind, kinds)} Its kinds: {listed}.")
    return NamedText(kind, shuffled(texts, seed))


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    return random.Random(seed).sample(texts, len(texts))


@dataclass(frozen=True)
class TokenizedText:
    """Sequences of a text. Each begins with the start token, which is not counted."""

    name: str
    documents: int
    sequences: tuple[list[int], ...]
    document_of: tuple[int, ...]
    """Index of the document of each sequence."""

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sequences)) - len(self.sequences)


def tokenize_text(
    text: NamedText, tokenizer: PreTrainedTokenizerBase, start_token: int, tokens: int, context_length: int
) -> TokenizedText:
    """Read documents until they have ``tokens`` tokens, and cut them into sequences of at most ``context_length``.

    The last document is cut where the tokens end. Every sequence begins with the start token, because the first token
    of a sequence has unusual activations.

    Raises:
        UserError: as the documents raise during iteration, or they are all empty.
    """
    sequences: list[list[int]] = []
    document_of: list[int] = []
    number, left = 0, tokens
    for document in text.documents:
        ids: list[int] = (
            tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
            if isinstance(document, str)
            else list(document)
        )[:left]
        if not ids:
            continue
        length = context_length - 1
        parts = [after_start(start_token, ids[first : first + length]) for first in range(0, len(ids), length)]
        sequences += parts
        document_of += [number] * len(parts)
        number, left = number + 1, left - len(ids)
        if not left:
            break
    if not sequences:
        raise UserError(f"Text {text.name} is empty. Give a text with at least one word.")
    return TokenizedText(text.name, number, tuple(sequences), tuple(document_of))


def choose_unit(texts: Sequence[TokenizedText]) -> Unit:
    """Return the unit that is counted as independent. Raises UserError if a text is too short for two units."""
    if all(text.documents >= MIN_DOCUMENTS for text in texts):
        return "document"
    for text in texts:
        if len(text.sequences) < MIN_UNITS:
            raise UserError(
                f"Text {text.name} is too short: {text.tokens} tokens in one sequence. Give several documents, "
                f"{MIN_DOCUMENTS} or more if possible."
            )
    return "sequence"


TOKENS_BEFORE, TOKENS_AFTER = 24, 40
"""Tokens of an example around its peak."""


Sums = tuple[Ints, Ints, Floats]
"""Keys (the document times N plus the expert), their active tokens and their summed activations; each [P]."""


def _merged(*parts: Sums) -> Sums:
    key_P, count_P, activation_P = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    keys, inverse_P = np.unique(key_P, return_inverse=True)
    counts = np.bincount(inverse_P, count_P, len(keys)).astype(np.int64)
    return keys, counts, np.bincount(inverse_P, activation_P, len(keys)).astype(np.float64)


class TextCounter:
    """One text with the counts and examples of its experts."""

    def __init__(self, text: TokenizedText, units: Sequence[int], num_experts: int, config: ContrastConfig) -> None:
        self.text, self.units = text, np.array(units)
        self.num_experts = num_experts
        # Sequences of similar length share a batch, so that little of it is padding.
        self._order = np.argsort([-len(ids) for ids in text.sequences], kind="stable")
        self._parts: list[Sums] = []
        self._statistics = ExpertStatistics(num_experts)
        self._top = TopExamples(num_experts, max(config.examples, 1), 0, config.seed)
        self._selected: SelectedExamples | None = None
        self._max_examples = config.examples

    def route(self, block: int, route: Callable[[Ints], Routing]) -> Iterator[int]:
        """Route the text, some sequences at once, given as [S, L] token ids. Count without padding and start tokens,
        and yield the number of tokens."""
        for first in range(0, len(self._order), block):
            ids_S = self._order[first : first + block]
            sequences = [self.text.sequences[number] for number in ids_S]
            lengths_S = np.array([len(ids) for ids in sequences])
            # Padded at the end, where no token of a text attends to the padding.
            token_ids_SL = np.zeros((len(sequences), length := int(lengths_S.max())), np.int64)
            for row, ids in enumerate(sequences):
                token_ids_SL[row, : len(ids)] = ids
            routing = route(token_ids_SL)
            place_L = np.arange(length)
            counts_SL = (place_L > 0) & (place_L < lengths_S[:, None])
            mask_T1 = torch.from_numpy(counts_SL.reshape(-1, 1)).to(routing.activations_TK.device)
            masked = Routing(routing.activations_TK * mask_T1, routing.indices_TK)
            # The places of the batches in the order are ascending, as the selection of examples needs.
            pairs, _ = active_pairs(masked, length, first + np.arange(len(ids_S)))
            self._top.add(pairs, self._statistics, self._statistics.add(pairs))
            if self._top.needs_pruning:
                self._top.prune(self._statistics)
            unit_P = self.units[self._order[pairs.sequence]].astype(np.int64)
            keys_P: Ints = unit_P * self.num_experts + pairs.expert.astype(np.int64)
            self._parts.append(_merged((keys_P, np.ones_like(keys_P), pairs.activation.astype(np.float64))))
            yield int(counts_SL.sum())

    def counts(self) -> tuple[Ints, Sums]:
        """Return the number of tokens of each document, [D], and the sums of all documents."""
        lengths = np.array([len(ids) - 1 for ids in self.text.sequences])
        return np.bincount(self.units, lengths).astype(np.int64), _merged(*self._parts)

    def examples(self, expert: int) -> Iterator[ContrastExample]:
        selected = self._selected = self._selected or self._top.prune(self._statistics)
        rows = slice(*np.searchsorted(selected.expert, [expert, expert + 1]))
        for index in range(rows.start, min(rows.stop, rows.start + self._max_examples)):
            sequence = int(self._order[selected.sequence[index]])
            ids, peak = self.text.sequences[sequence], int(selected.position[index])
            first, end = max(1, peak - TOKENS_BEFORE), peak + TOKENS_AFTER + 1
            pairs = self._top.pairs.select(np.arange(selected.start[index], selected.end[index]))
            active = zip(pairs.position.tolist(), pairs.activation.tolist(), pairs.rank.tolist(), strict=True)
            yield ContrastExample(
                sequence=sequence,
                position=peak - first,
                activation=float(selected.activation[index]),
                token_ids=tuple(ids[first:end]),
                active=tuple((place - first, value, rank) for place, value, rank in active if first <= place < end),
            )


def contrast(
    run: Run,
    a: NamedText,
    b: NamedText,
    config: ContrastConfig,
    language_model: LanguageModel,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Contrast:
    """Find the experts whose activation density differs between two texts. Raises UserError if a text is too short, or
    no expert is active often enough."""
    steps = contrast_in_steps(run, a, b, config, language_model, SEQUENCES_PER_FORWARD)
    return completed(steps, callbacks, run.name)()


def contrast_in_steps(
    run: Run, a: NamedText, b: NamedText, config: ContrastConfig, language_model: LanguageModel, sequences: int
) -> Steps[Callable[[], Contrast]]:
    """``contrast`` in steps of a few sequences. The comparison itself, which needs no language model, is the result."""
    check_fits(language_model, run)
    context_length = min(run.config.text.context_length, language_model.max_tokens)
    start_token = start_token_id(language_model.tokenizer, run.config.text.start_token)
    texts = [
        tokenize_text(text, language_model.tokenizer, start_token, config.tokens, context_length) for text in (a, b)
    ]
    unit, layer, sides, done = choose_unit(texts), run.config.layer, list[TextCounter](), 0
    for text in texts:
        units = text.document_of if unit == "document" else range(len(text.sequences))
        sides.append(TextCounter(text, units, run.layer.config.num_experts, config))

    def route(token_ids_SL: Ints) -> Routing:
        sparse_layer = run.layer.to(language_model.device_of(layer))
        return route_in_parts(sparse_layer, layer_input(sparse_layer, layer, language_model, token_ids_SL))

    yield done, (total := sum(text.tokens for text in texts))
    for side in sides:
        for tokens in side.route(sequences, route):
            yield (done := done + tokens), total
    return partial(_compared, run, config, unit, sides)


def _compared(run: Run, config: ContrastConfig, unit: Unit, sides: Sequence[TextCounter]) -> Contrast:
    """Compare routed texts. Errors as ``contrast``."""
    (tokens_a, a), (tokens_b, b) = (side.counts() for side in sides)
    num_experts = run.layer.config.num_experts
    b = (b[0] + len(tokens_a) * num_experts, *b[1:])  # documents of b follow those of a
    key_P, count_P, activation_P = (np.concatenate(columns) for columns in zip(a, b, strict=True))
    tokens_D, (document_P, expert_P) = np.concatenate([tokens_a, tokens_b]), np.divmod(key_P, num_experts)
    counts = DocumentCounts(tokens_D, document_P, expert_P, count_P, activation_P, num_experts)
    in_a_D = np.arange(len(counts.tokens_D)) < len(tokens_a)
    ratios = rate_ratios(counts, in_a_D)
    is_tested_N = ratios.enough(config.min_tokens, config.min_units)
    if not is_tested_N.any():
        raise UserError(
            f"No expert is active on {config.min_tokens} tokens of {config.min_units} {unit}s. "
            "Give longer texts, or lower the two limits."
        )
    experts = _described(ratios, np.flatnonzero(is_tested_N))
    significant = [each for each in experts if each.is_found]
    found_a = [each for each in significant if each.ratio.value > 1]
    found_b = [each for each in significant if each.ratio.value < 1]
    shown = [each.expert for part in (found_a, found_b) for each in part[: config.shown]]
    first, other = (ContrastedText(s.text.name, s.text.documents, int(s.units.max()) + 1, s.text.tokens) for s in sides)
    return Contrast(
        run=run.name,
        a=first,
        b=other,
        unit=unit,
        num_experts=num_experts,
        min_tokens=config.min_tokens,
        min_units=config.min_units,
        tested=len(experts),
        found_a=len(found_a),
        found_b=len(found_b),
        chance=_chance_level(counts, in_a_D, is_tested_N, config) if config.shuffles else None,
        experts=tuple(experts),
        examples={expert: ContrastExamples(*(tuple(s.examples(expert)) for s in sides)) for expert in shown},
    )


def _described(ratios: RateRatios, experts_E: Ints) -> list[ContrastedExpert]:
    """Describe the tested experts: first those found, by the end of their interval that is nearer to 1."""
    a, b = ratios.a, ratios.b
    with np.errstate(divide="ignore", invalid="ignore"):
        activation_N = a.activation_N / a.tokens / (b.activation_N / b.tokens)
    counts = (values_N.astype(np.int64) for values_N in (a.active_N, b.active_N, a.units_N, b.units_N))
    columns = [values_N[experts_E].tolist() for values_N in (*counts, a.active_N / a.tokens, b.active_N / b.tokens)]
    log_ratios = (ratios.log_ratio_N, ratios.low_N, ratios.high_N)
    intervals = map(Interval, *(np.exp(values_N)[experts_E].tolist() for values_N in log_ratios))
    activations = [value if math.isfinite(value) else None for value in activation_N[experts_E].tolist()]
    p_values_E = ratios.p_value_N[experts_E]
    rest = (intervals, activations, p_values_E.tolist(), q_values(p_values_E).tolist())
    described = list(map(ContrastedExpert, experts_E.tolist(), *columns, *rest))
    return sorted(described, key=lambda each: (not each.is_found, -each.bound, each.p_value, each.expert))


def _chance_level(counts: DocumentCounts, in_a_D: Mask, is_tested_N: Mask, config: ContrastConfig) -> ChanceLevel:
    """Repeat the comparison with random assignments of documents to the texts."""
    generator = np.random.default_rng(config.seed)
    found, covered = [], []
    for _ in range(config.shuffles):
        ratios = rate_ratios(counts, generator.permutation(in_a_D))
        found.append(int((q_values(ratios.p_value_N[is_tested_N]) <= SIGNIFICANT_Q).sum()))
        includes_1 = (ratios.low_N <= 0) & (ratios.high_N >= 0)
        covered.append(float(includes_1[is_tested_N].mean()))
    return ChanceLevel(
        shuffles=config.shuffles,
        mean_found=float(np.mean(found)),
        most_found=max(found),
        shuffles_with_any=sum(number > 0 for number in found),
        covered=float(np.mean(covered)),
    )
