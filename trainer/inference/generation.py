"""Batched generation: rows join, grow by one token per step, and leave, each with its own edits.

All rows share one key-value cache, left-padded to the longest. The prompt of a joining row is computed separately and
then appended, so a long prompt adds no padding to the computation of short ones. Rows that hold the same list of ids
are one text, which is computed once up to the first block that is edited in any row.

Not every architecture has one pair of keys and values per block: some share pairs, or keep convolution or recurrent
states. For these, every step computes all tokens again, padded on the right, which changes no earlier token of a causal
language model.

Sampling is coupled: two variants of a text differ only by their probabilities, never by sampling noise. Every token is
the argmax of log p + Gumbel noise, and the noise depends only on seed and step. Variants with equal probabilities
therefore sample the same token, and variants with similar ones usually do.

Shapes: B rows of the batch, R texts, S some of them, T tokens, I input width, V vocabulary size, P used tokens of all
texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mxd.trainer.config.steering import Sampling
from mxd.trainer.inference.edits import EditedBlock, EditPlan, LayerEdits, TextProgress, consecutive
from mxd.trainer.inference.results import Alternative, RoutedExpert
from mxd.trainer.language_model.kv_cache import GrowableCache, shared_prefix
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import single_texts

MAX_REJECTIONS = 4
"""Candidates that are tested one by one before all tokens are sorted."""
NUM_ALTERNATIVES = 5


class TokenComparison(NamedTuple):
    """A sampled token, with the next-token distributions of its variant and of the counterpart."""

    id: int
    log_probability: float
    """Log-probability of the sampled token under its own variant, in nats."""
    counterpart_log_probability: float
    kl: float
    """KL divergence from the own distribution to the counterpart's, in nats."""
    alternatives: tuple[Alternative, ...]
    counterpart_alternatives: tuple[Alternative, ...]
    watched: float
    """Probability mass of the watched tokens under the own variant."""


def gumbel_noise(seed: int, step: int, vocabulary: int) -> Tensor:
    """Standard Gumbel noise [V] of one step, the same on every device."""
    return gumbel_noises([(seed, step)], vocabulary)[0]


def gumbel_noises(steps: Sequence[tuple[int, int]], vocabulary: int) -> Tensor:
    """Standard Gumbel noise [len(steps), V] of several pairs of seed and step."""
    noise_RV = torch.empty(len(steps), vocabulary, dtype=torch.float64)
    for noise_V, (seed, step) in zip(noise_RV, steps, strict=True):
        # Modulo 2**64, the range of PyTorch's seeds; the multiplier is odd, so no two seeds become the same.
        mixed = (seed * 1_000_003 + step) % 2**64
        torch.rand(vocabulary, generator=torch.Generator().manual_seed(mixed), out=noise_V)
    return noise_RV.clamp_(1e-300, 1 - 1e-16).log_().neg_().log_().neg_()


def apply_repetition_penalty(logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling]) -> Tensor:
    """Divide positive logits of used tokens by the repetition penalty, and multiply negative ones by it."""
    penalties = [sampling.repetition_penalty for sampling in samplings]
    penalised = [ids if penalty != 1 else () for ids, penalty in zip(used, penalties, strict=True)]
    rows = [row for row, ids in enumerate(penalised) for _ in ids]
    if not rows:
        return logits_RV
    rows_P, ids_P = torch.tensor([rows, [token for ids in penalised for token in ids]], device=logits_RV.device)
    penalty_P = torch.tensor(penalties, dtype=logits_RV.dtype, device=logits_RV.device)[rows_P]
    logits_P = logits_RV[rows_P, ids_P]
    return logits_RV.index_put((rows_P, ids_P), torch.where(logits_P > 0, logits_P / penalty_P, logits_P * penalty_P))


def sample_tokens(
    logits_RV: Tensor, used: Sequence[set[int]], samplings: Sequence[Sampling], noise_RV: Tensor
) -> list[int]:
    """Sample the next token of each text with its own settings. Tests the best candidates against top-k and top-p
    first, since they nearly always pass, and sorts only if none does. ``used`` are the ids of each text so far,
    ``noise_RV`` is noise from ``gumbel_noises``."""
    logits_RV = apply_repetition_penalty(logits_RV.cpu().double(), used, samplings)
    temperature_R1 = torch.tensor([[sampling.temperature] for sampling in samplings], dtype=torch.float64)
    logits_RV = logits_RV / torch.where(temperature_R1 > 0, temperature_R1, 1.0)
    noised_RV = logits_RV + noise_RV
    if not bool(temperature_R1.all()):
        noised_RV = torch.where(temperature_R1 > 0, noised_RV, logits_RV)
    nucleus = _Nucleus(logits_RV, samplings)
    best_R: Tensor = noised_RV.argmax(dim=-1)
    rejected_S = nucleus.rejected(torch.arange(len(best_R)), best_R)
    for _ in range(MAX_REJECTIONS - 1):
        if not len(rejected_S):
            break
        noised_RV[rejected_S, best_R[rejected_S]] = -torch.inf
        best_R[rejected_S] = noised_RV[rejected_S].argmax(dim=-1)
        rejected_S = nucleus.rejected(rejected_S, best_R)
    if len(rejected_S):
        allowed_SV = nucleus.allowed(rejected_S)
        best_R[rejected_S] = torch.where(allowed_SV, noised_RV[rejected_S], -torch.inf).argmax(dim=-1)
    ids: list[int] = best_R.tolist()
    return ids


class _Nucleus:
    """The tokens of each text that top-k and top-p allow; all tokens at temperature 0."""

    def __init__(self, logits_RV: Tensor, samplings: Sequence[Sampling]) -> None:
        vocabulary = logits_RV.shape[1]
        self._logits_RV = logits_RV
        self._probabilities_RV = logits_RV.softmax(dim=-1)
        top_p = [each.top_p if each.temperature and each.top_p < 1 else torch.inf for each in samplings]
        top_k = [each.top_k if each.temperature and 0 < each.top_k < vocabulary else vocabulary for each in samplings]
        self._top_p_R, self._top_k_R = torch.tensor([top_p, top_k], dtype=torch.float64)
        for row, k in enumerate(top_k):
            if k < vocabulary:  # the probabilities of the top k sum to 1
                self._probabilities_RV[row] /= self._probabilities_RV[row].topk(k).values.sum()
        self._uses_top_k = min(top_k) < vocabulary

    def rejected(self, rows_S: Tensor, best_R: Tensor) -> Tensor:
        """Subset of the texts ``rows_S`` whose token in ``best_R`` is not allowed: it is not among the top k, or the
        tokens above it hold top-p."""
        ids_S = best_R[rows_S]
        all_rows = len(rows_S) == len(self._top_p_R)  # the common case, without a copy
        logits_SV = self._logits_RV if all_rows else self._logits_RV[rows_S]
        probabilities_SV = self._probabilities_RV if all_rows else self._probabilities_RV[rows_S]
        above_SV = logits_SV > logits_SV.gather(1, ids_S.unsqueeze(1))
        allowed_S: Tensor = torch.where(above_SV, probabilities_SV, 0.0).sum(dim=-1) < self._top_p_R[rows_S]
        if self._uses_top_k:
            allowed_S &= above_SV.sum(dim=-1) < self._top_k_R[rows_S]
        return rows_S[~allowed_S]

    def allowed(self, rows_S: Tensor) -> Tensor:
        """[S, V]: whether each token of some texts is allowed, by a full sort."""
        order_SV = self._logits_RV[rows_S].argsort(dim=-1, descending=True, stable=True)
        sorted_SV = self._probabilities_RV[rows_S].gather(1, order_SV)
        before_SV = sorted_SV.cumsum(dim=-1) - sorted_SV
        rank_V = torch.arange(order_SV.shape[1])
        allowed_SV = (before_SV < self._top_p_R[rows_S, None]) & (rank_V < self._top_k_R[rows_S, None])
        return torch.zeros_like(allowed_SV).scatter_(1, order_SV, allowed_SV)


@dataclass(frozen=True, eq=False)
class SamplingState:
    sampling: Sampling
    seed: int
    counterpart: SequenceState
    """Row with the same tokens under the other variant."""
    block: int
    """Block whose routing is reported."""
    watched: tuple[int, ...] = ()
    """Tokens whose probability mass is reported."""


@dataclass(eq=False)
class SequenceState:
    ids: list[int]
    edits: Mapping[int, LayerEdits] = field(default_factory=dict)
    """Block -> its sparse layer and edits; other blocks keep their MLP."""
    progress: TextProgress = field(default_factory=TextProgress)
    """State of the text that conditions of edits depend on. Rows of one text share it."""
    sampler: SamplingState | None = None
    """None for a row that only serves as a counterpart."""

    def plans(self, block: int, start: int, stop: int) -> list[EditPlan | None]:
        plan = self.edits[block].plan
        if not plan.edits:
            return [None] * (stop - start)
        return [
            plan.at(self.progress, position) if self.progress.is_edited(position) else None
            for position in range(start, stop)
        ]


@dataclass(frozen=True)
class StepOutput:
    """Result of one forward pass for some rows; the parts below are computed on first access."""

    language_model: LanguageModel
    rows: Sequence[SequenceState]
    logits_BV: Tensor
    log_p_BV: Tensor
    blocks: Mapping[int, EditedBlock]
    batch_rows: Sequence[int]
    """Index of each row in the forward pass."""
    last_tokens: Sequence[int]
    """Position of each row's last token in the forward pass; -1 is the last."""

    @cached_property
    @torch.inference_mode()
    def next_tokens(self) -> Mapping[SequenceState, TokenComparison]:
        index = {row: number for number, row in enumerate(self.rows)}
        samplers = {row: row.sampler for row in self.rows if row.sampler is not None}
        rows, counterparts = list(map(index.__getitem__, samplers)), [index[it.counterpart] for it in samplers.values()]
        # Both variants of a text have the same seed and step, so their noise is computed once.
        steps = [(sampler.seed, len(row.ids) - row.progress.prompt_tokens) for row, sampler in samplers.items()]
        place = {step: number for number, step in enumerate(dict.fromkeys(steps))}
        noise_RV = gumbel_noises(list(place), self.logits_BV.shape[-1])[[place[step] for step in steps]]
        used, samplings = [set(row.ids) for row in samplers], [sampler.sampling for sampler in samplers.values()]
        ids = sample_tokens(self.logits_BV[consecutive(rows)], used, samplings, noise_RV)
        log_p_BV = self.log_p_BV
        rows_R, counterparts_R, ids_R = torch.tensor([rows, counterparts, ids], device=log_p_BV.device)
        own_RV, other_RV = log_p_BV[rows_R], log_p_BV[counterparts_R]
        kl_R = (own_RV - other_RV).mul_(own_RV.exp_()).sum(dim=-1)
        columns = torch.stack([log_p_BV[rows_R, ids_R], log_p_BV[counterparts_R, ids_R], kl_R], dim=1).tolist()
        top = log_p_BV.topk(min(NUM_ALTERNATIVES, log_p_BV.shape[1]), dim=-1)
        top_ids, top_p = top.indices.tolist(), top.values.exp().tolist()
        texts = single_texts(self.language_model, {token for row in {*rows, *counterparts} for token in top_ids[row]})
        alternatives = {
            row: tuple(Alternative(token, texts[token], p) for token, p in zip(top_ids[row], top_p[row], strict=True))
            for row in {*rows, *counterparts}
        }
        watched = dict.fromkeys(samplers, 0.0)
        for tokens in {sampler.watched for sampler in samplers.values()} - {()}:
            of_tokens = [row for row, sampler in samplers.items() if sampler.watched == tokens]
            mass_S = log_p_BV[[index[row] for row in of_tokens]][:, list(tokens)].exp_().sum(dim=-1)
            watched |= zip(of_tokens, mass_S.tolist(), strict=True)
        return {
            row: TokenComparison(
                token, own, other, max(0.0, kl), alternatives[mine], alternatives[theirs], watched[row]
            )
            for row, token, (own, other, kl), mine, theirs in zip(
                samplers, ids, columns, rows, counterparts, strict=True
            )
        }

    @cached_property
    @torch.inference_mode()
    def experts(self) -> Mapping[SequenceState, tuple[RoutedExpert, ...]]:
        """Active experts on the last token of each sampled row, in the block that its sampler names."""
        place = dict(zip(self.rows, zip(self.batch_rows, self.last_tokens, strict=True), strict=True))
        experts: dict[SequenceState, tuple[RoutedExpert, ...]] = {}
        for block in {row.sampler.block for row in self.rows if row.sampler is not None}:
            sampled = [row for row in self.rows if row.sampler is not None and row.sampler.block == block]
            routed = self.blocks[block].experts_at([place[row] for row in sampled])
            experts |= dict(zip(sampled, routed, strict=True))
        return experts


class BatchLayout:
    """Assignment of rows to texts: blocks before ``split_block`` compute texts, the other blocks compute rows."""

    def __init__(self, rows: Sequence[SequenceState], split_block: int) -> None:
        """Rows with the same list of ids are one text. ``split_block`` is the first block that computes all rows."""
        self.rows = list(rows)
        self.split_block = split_block
        # If the rows split at the very first block, each is a text of its own.
        keys = [id(row.ids) if split_block else id(row) for row in self.rows]
        first: dict[int, SequenceState] = {}
        for key, row in zip(keys, self.rows, strict=True):
            first.setdefault(key, row)
        self.texts = list(first.values())
        text = {key: index for index, key in enumerate(first)}
        self.text_of = [text[key] for key in keys]

    def sources(
        self, num_blocks: int, target: BatchLayout, parents: Mapping[SequenceState, SequenceState]
    ) -> list[list[int]]:
        """For each block, the index in this layout of each cache row that ``target`` needs. ``parents`` maps a row of
        ``target`` to the row of this layout that it continues; by default itself."""
        index = {row: number for number, row in enumerate(self.rows)}
        of_rows = [index[parents.get(row, row)] for row in target.rows]
        of_texts = [index[parents.get(row, row)] for row in target.texts]
        by_block = [of_texts if block < target.split_block else of_rows for block in range(num_blocks)]
        return [
            [self.text_of[row] for row in rows] if block < self.split_block else rows
            for block, rows in enumerate(by_block)
        ]


class RowBatch:
    """Rows that take their steps together on one language model. Not thread-safe."""

    def __init__(self, language_model: LanguageModel) -> None:
        self.language_model = language_model
        self.layout = BatchLayout([], 0)
        """Present rows, and the block at which those of one text split."""
        self._cache = self._new_cache()
        self._lengths: dict[SequenceState, int] = {}

    @property
    def rows(self) -> Sequence[SequenceState]:
        return self.layout.rows

    @torch.inference_mode()
    def join(self, prompts: Sequence[SequenceState], continuations: Sequence[tuple[int, SequenceState]]) -> StepOutput:
        """Compute prompts and add rows that continue them; return the output for the new rows. The prompts have equal
        length. Each continuation is the index of the prompt that it continues, and the new row."""
        (length,) = {len(prompt.ids) for prompt in prompts}
        sources, rows = [prompt for prompt, _ in continuations], [row for _, row in continuations]
        split_block = self._split_block([*self.rows, *prompts])
        fresh, prompt_layout = self._new_cache(), BatchLayout(prompts, split_block)
        output = self._forward(prompt_layout, length, dict.fromkeys(prompts, 0), fresh)
        new_layout, parents = BatchLayout(rows, split_block), {row: prompts[source] for source, row in continuations}
        if fresh is not None:
            fresh.reorder(prompt_layout.sources(self._num_blocks, new_layout, parents))
        if self.rows and self._cache is not None and fresh is not None:
            self._reorder(BatchLayout(self.rows, split_block))
            self._cache.append_rows(fresh)
        else:
            self._cache = fresh
        self.layout = BatchLayout([*self.rows, *rows], split_block)
        self._lengths |= dict.fromkeys(rows, length)
        return replace(
            output,
            rows=rows,
            logits_BV=output.logits_BV[sources],
            log_p_BV=output.log_p_BV[sources],
            batch_rows=sources,
            last_tokens=[output.last_tokens[source] for source in sources],
        )

    @torch.inference_mode()
    def step(self) -> StepOutput:
        """Compute the newest token of every row. If this fails, the cache stays as it was."""
        length = 0 if self._cache is None else self._cache.get_seq_length()
        succeeded = False
        try:
            output = self._forward(self.layout, 1, self._lengths, self._cache)
            succeeded = True
        finally:
            if not succeeded and self._cache is not None:
                self._cache.truncate(length)
        self._lengths = {row: length + 1 for row, length in self._lengths.items()}
        return output

    @torch.inference_mode()
    def fork(self, forks: Sequence[tuple[SequenceState, SequenceState]]) -> None:
        """Add rows that continue other rows, from pairs of a row of the batch and the new row that copies its cache."""
        if not forks:
            return
        layout = BatchLayout([*self.rows, *(row for _, row in forks)], self.layout.split_block)
        self._reorder(layout, {row: parent for parent, row in forks})
        self._lengths |= {row: self._lengths[parent] for parent, row in forks}

    @torch.inference_mode()
    def leave(self, rows: Sequence[SequenceState]) -> None:
        """Remove rows; rows that have left already are ignored."""
        leaving = set(rows)
        remaining = [row for row in self.rows if row not in leaving]
        if len(remaining) == len(self.rows):
            return
        lengths = {row: self._lengths[row] for row in remaining}
        if remaining:
            skip = 0 if self._cache is None else self._cache.get_seq_length() - max(lengths.values())
            self._reorder(BatchLayout(remaining, self._split_block(remaining)), skip=skip)
        else:
            self._cache, self.layout = self._new_cache(), BatchLayout([], 0)
        self._lengths = lengths

    def _new_cache(self) -> GrowableCache | None:
        """An empty cache; None if the language model has none with one pair per block."""
        return GrowableCache() if self.language_model.can_grow_cache else None

    @property
    def _num_blocks(self) -> int:
        return len(self.language_model.architecture.blocks)

    def _split_block(self, rows: Sequence[SequenceState]) -> int:
        """First block that may differ between rows of one text."""
        edited = min((block for row in rows for block in row.edits), default=0)
        return edited if edited and self.language_model.can_share_prefix(edited) else 0

    def _reorder(
        self, layout: BatchLayout, parents: Mapping[SequenceState, SequenceState] | None = None, skip: int = 0
    ) -> None:
        if self._cache is not None:
            self._cache.reorder(self.layout.sources(self._num_blocks, layout, parents or {}), skip)
        self.layout = layout

    def _forward(
        self, layout: BatchLayout, new: int, before: Mapping[SequenceState, int], cache: GrowableCache | None
    ) -> StepOutput:
        """Compute the ``new`` newest tokens of every row, or without a cache all of them. ``before`` is the number of
        each row's tokens in the cache."""
        model, rows, texts = self.language_model, layout.rows, layout.texts
        if cache is None:
            new, before = max(len(text.ids) for text in texts), dict.fromkeys(rows, 0)
        blocks: dict[int, EditedBlock] = {}
        for index, row in enumerate(rows):
            for block, edits in row.edits.items():
                end = min(before[row] + new, len(row.ids))
                plans_T = row.plans(block, before[row], end) + [None] * (before[row] + new - end)  # padding
                # In the first block that may differ, rows of one text still have the same input.
                text_of = layout.text_of if block == layout.split_block else None
                blocks.setdefault(block, EditedBlock(len(rows), blocks, text_of)).add_row(index, edits, plans_T)
        with ExitStack() as stack:
            # First, so that replaced MLPs compute the original with the faster kernels.
            model.linear_kernels.apply(stack)
            stack.enter_context(shared_prefix(model.architecture.blocks, layout.split_block, layout.text_of))
            stack.enter_context(model.replace_mlps(blocks))
            if cache is None:
                last_tokens = [len(row.ids) - 1 for row in rows]
                ids_RT = torch.tensor([[*text.ids, *[0] * (new - len(text.ids))] for text in texts])
                logits_BV = model.logits_at(ids_RT, last_tokens)
            else:
                last_tokens = [-1] * len(rows)
                ids_RT = torch.tensor([text.ids[-new:] for text in texts])
                logits_BV = model.next_padded_logits(ids_RT, [before[text] for text in texts], cache)
        log_p_BV = logits_BV.log_softmax(dim=-1)
        return StepOutput(model, tuple(rows), logits_BV, log_p_BV, blocks, range(len(rows)), last_tokens)


def run_alone(language_model: LanguageModel, request: Any) -> Iterator[Any]:
    """Events of a ``Steering`` or a ``StrengthSweep`` in a batch of its own."""
    batch = RowBatch(language_model)
    yield from request.join(batch)
    while not request.finished:
        yield from request.advance(batch, batch.step())
