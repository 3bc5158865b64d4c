"""Recurrence of experts across seeds: which experts of a layer does training find again from another random start?

Two experts are compared by when they fire and by what they write: the cosine of their gate activations over the tokens
of a text, and the cosine of their mean outputs. An expert is found again if both cosines are above chance, and if the
match is mutual: neither expert has a better one. Without the last condition, one frequent expert can be the match of
many. Chance is measured on shuffled experts: the same gate activations, with those of the other layer shifted along the
text.

Shapes: S sequences, L tokens per sequence, T tokens, K active experts, N experts of the run, J experts of the other, E
measured experts, I input width, O output width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from sqlalchemy import Engine, delete, insert, select
from torch import Tensor

from mxd.trainer.analysis.results import (
    MATCH_COLUMNS,
    RECURRENCE_COMMAND,
    ExpertRecurrence,
    Match,
    Recurrence,
    RunRecurrence,
)
from mxd.trainer.config.analysis import RecurrenceConfig
from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.data.sequences import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import IndexRecord, MeasurementRecord, RecurrenceRecord, RunRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.bootstrap import Bootstrap, Floats
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


@dataclass(frozen=True, eq=False)
class Firing:
    """Gate activations and mean outputs of all experts of a layer over a text."""

    routing: Routing
    """Routing of all tokens, on the CPU."""
    direction_NO: Tensor
    """Mean output of each expert, with norm 1."""

    @property
    def num_experts(self) -> int:
        return len(self.direction_NO)

    @cached_property
    def active_N(self) -> Tensor:
        """Number of active tokens of each expert."""
        activations_TK, indices_TK = self.routing
        return torch.bincount(indices_TK[activations_TK > 0], minlength=self.num_experts)

    @cached_property
    def norm_N(self) -> Tensor:
        """Norm of each expert's gate activations over the text; tiny instead of 0 for those that never fire."""
        squares_N = torch.zeros(self.num_experts)
        squares_N.index_add_(0, self.routing.indices_TK.reshape(-1), self.routing.activations_TK.reshape(-1).square())
        return squares_N.sqrt().clamp_min(1e-12)

    def dense(self, length: int) -> Iterator[Tensor]:
        """Yield the gate activations of all experts, [L, N], for each sequence of ``length`` tokens."""
        for activations_LK, indices_LK in zip(*(part.split(length) for part in self.routing), strict=True):
            yield torch.zeros(len(indices_LK), self.num_experts).scatter_add_(1, indices_LK, activations_LK)


def sums_per_sequence(
    own: Firing, other: Firing, experts_E: Tensor, match_E: Tensor, length: int
) -> tuple[Floats, Floats, Floats]:
    """Sums over the tokens of each sequence, [S, E]: products of an expert's gate activations and its match's, squares
    of the expert's, and squares of the match's."""
    sums = []
    for own_LN, other_LJ in zip(own.dense(length), other.dense(length), strict=True):
        own_LE, other_LE = own_LN[:, experts_E], other_LJ[:, match_E]
        sums.append(torch.stack([(own_LE * other_LE).sum(0), own_LE.square().sum(0), other_LE.square().sum(0)]))
    products_SE, own_SE, other_SE = torch.stack(sums, dim=1).double().numpy()
    return products_SE, own_SE, other_SE


FIRING_PERCENTILE, WRITING_PERCENTILE = 0.99, 0.95
"""Percentile that a match must exceed: of shuffled experts' best cosines of gate activations, and of random pairs'
cosines of mean outputs."""
DENSITY_BINS = 10
"""Rare experts match by chance more easily than frequent ones, so each tenth of the experts has a chance level."""
TOKENS_AT_ONCE = 4096


def measure_recurrence(
    run: Run,
    others: Sequence[Run],
    config: RecurrenceConfig,
    language_model: LanguageModel,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Recurrence:
    """Compare the experts of ``run`` with those of other runs of the same layer. Raises UserError if the runs replace
    different layers, the text is too short, or no expert is active often enough."""
    (own, *firings), length = _collect((run, *others), config, language_model, callbacks)
    tokens = len(own.routing.indices_TK)
    measured_E = (own.active_N >= config.min_tokens).nonzero().squeeze(1)
    if not len(measured_E):
        raise UserError(f"No expert of '{run.name}' is active on {config.min_tokens} tokens. Read more tokens.")
    generator, active_E = np.random.default_rng(config.seed), own.active_N[measured_E]
    over_experts = Bootstrap(len(measured_E), config.resamples, config.seed)
    over_sequences = Bootstrap(tokens // length, config.resamples, config.seed)

    def compared(other: Firing, name: str) -> tuple[RunRecurrence, list[Match]]:
        # Whole turns would leave every token at its position in the sequence, and positions are what some experts read.
        shifts = generator.integers(tokens // 4, 3 * tokens // 4, size=2)
        best_E, match_E, mutual_E = _best_matches(own, other, 0, measured_E)
        chance_E, _, _ = _best_matches(own, other, int(shifts[0]), measured_E)
        shuffled_E, shuffled_match_E, shuffled_mutual_E = _best_matches(own, other, int(shifts[1]), measured_E)
        # The percentile of the shuffled cosines among experts with a similar number of active tokens.
        level_E = torch.empty_like(chance_E)
        for experts_B in active_E.argsort().tensor_split(min(DENSITY_BINS, len(active_E))):
            level_E[experts_B] = chance_E[experts_B].quantile(FIRING_PERCENTILE)
        random_E = torch.from_numpy(generator.permutation(match_E.numpy()))
        writing_E, random_writing_E, shuffled_writing_E = (
            (own.direction_NO[measured_E] * other.direction_NO[partner_E]).sum(1)
            for partner_E in (match_E, random_E, shuffled_match_E)
        )
        writing_level = random_writing_E.quantile(WRITING_PERCENTILE)
        above_E = (best_E > level_E) & (writing_E > writing_level)
        by_chance_E = (shuffled_E > level_E) & (shuffled_writing_E > writing_level) & shuffled_mutual_E
        summary = RunRecurrence(
            run=name,
            found_again=over_experts.mean((above_E & mutual_E).double().numpy()),
            above_chance=above_E.double().mean().item(),
            chance=by_chance_E.double().mean().item(),
            firing_cosine=best_E.median().item(),
            chance_firing_cosine=chance_E.median().item(),
            writing_cosine=writing_E.median().item(),
            chance_writing_cosine=random_writing_E.median().item(),
        )
        low_E, high_E = over_sequences.cosines(*sums_per_sequence(own, other, measured_E, match_E, length))
        columns_E = (match_E, best_E, writing_E, low_E, high_E, level_E, writing_level.expand(len(match_E)), mutual_E)
        return summary, [Match(name, *each) for each in zip(*(it.tolist() for it in columns_E), strict=True)]

    each = (compared(other, it.name) for it, other in zip(others, firings, strict=True))
    summaries, matches = zip(*each, strict=True)
    rows = zip(measured_E.tolist(), active_E.tolist(), zip(*matches, strict=True), strict=True)
    experts = tuple(ExpertRecurrence(*row) for row in rows)
    in_all_E = np.array([float(each.found_in == len(others)) for each in experts])
    found_in_all = over_experts.mean(in_all_E)
    return Recurrence(run.name, own.num_experts, tokens, config.min_tokens, summaries, found_in_all, experts)


@torch.no_grad()
def _collect(
    runs: Sequence[Run], config: RecurrenceConfig, language_model: LanguageModel, callbacks: Callbacks
) -> tuple[list[Firing], int]:
    """Route a text through the layers of all runs, in one pass of the language model. Also return the tokens per
    sequence."""
    layer = runs[0].config.layer
    for run in runs:
        check_fits(language_model, run)
        if run.config.layer != layer:
            raise UserError(
                f"'{run.name}' replaces layer {run.config.layer}, '{runs[0].name}' layer {layer}. "
                "Choose runs of one layer."
            )
    layers = [run.layer.to(language_model.device_of(layer)) for run in runs]
    sums = [torch.zeros(each.config.num_experts, each.config.output_width) for each in layers]
    parts: list[list[Routing]] = [[] for _ in layers]
    stream = sequences(config.text, language_model.tokenizer, config.tokens, config.seed, "sampled")
    ids_SL = torch.from_numpy(np.stack(list(stream))).long()
    for number, part_SL in enumerate(ids_SL.split(SEQUENCES_PER_FORWARD)):
        callbacks.check_cancelled()
        activations = language_model.capture(layer, part_SL)
        for each, sums_NO, routings in zip(layers, sums, parts, strict=True):
            x_TI = activations.inputs_for(each).float()
            routing, dense_TM = each.route(x_TI), each.dense_output(x_TI)
            for column in range(routing.indices_TK.shape[1]):
                single = Routing(*(values_TK[:, column, None] for values_TK in routing))
                sums_NO.index_add_(0, single.indices_TK[:, 0].cpu(), each.contribution(dense_TM, single).cpu())
            routings.append(Routing(routing.activations_TK.float().cpu(), routing.indices_TK.cpu()))
        done = min((number + 1) * SEQUENCES_PER_FORWARD, len(ids_SL)) * ids_SL.shape[1]
        callbacks.on_progress(done, ids_SL.numel(), f"{len(runs)} runs")
    firings = [
        Firing(Routing(*map(torch.cat, zip(*routings, strict=True))), torch.nn.functional.normalize(sums_NO, dim=1))
        for sums_NO, routings in zip(sums, parts, strict=True)
    ]
    return firings, ids_SL.shape[1]


def _best_matches(own: Firing, other: Firing, shift: int, measured_E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Largest cosine of gate activations with any expert of the other layer, that expert, and mutuality, [E] each.

    The other layer's activations are shifted by ``shift`` tokens first.
    """
    sums_P = torch.zeros(own.num_experts * other.num_experts)
    activations_TK, indices_TK = (part.roll(shift, 0) for part in other.routing)
    for first in range(0, len(indices_TK), TOKENS_AT_ONCE):
        part = slice(first, first + TOKENS_AT_ONCE)  # only pairs that are active together are visited
        pair_TKK = own.routing.indices_TK[part, :, None] * other.num_experts + indices_TK[part, None]
        product_TKK = own.routing.activations_TK[part, :, None] * activations_TK[part, None]
        sums_P.index_add_(0, pair_TKK.reshape(-1), product_TKK.reshape(-1))
    cosine_NJ = sums_P.reshape(own.num_experts, other.num_experts)
    cosine_NJ /= own.norm_N[:, None]
    cosine_NJ /= other.norm_N[None]
    best_N, match_N = cosine_NJ.max(dim=1)
    match_E = match_N[measured_E]
    return best_N[measured_E], match_E, cosine_NJ.argmax(dim=0)[match_E] == measured_E


def save_recurrence(database: Engine, result: Recurrence, config: RecurrenceConfig) -> bool:
    """Replace the stored matches of a run's experts. Return whether they were stored: only those of an indexed run are.

    The settings get the number of tokens that were read.
    """
    with writing(database) as session:
        indexed = select(RunRecord.id).join(IndexRecord, IndexRecord.run_id == RunRecord.id)
        run_id = session.scalar(indexed.where(RunRecord.name == result.run))
        if run_id is None:
            return False
        rows = [
            {"run_id": run_id, "expert": expert.expert, "other_run": match.run, "other_expert": match.expert}
            | {name: getattr(match, name) for name in MATCH_COLUMNS}
            for expert in result.experts
            for match in expert.matches
        ]
        session.execute(delete(RecurrenceRecord).where(RecurrenceRecord.run_id == run_id))
        session.execute(insert(RecurrenceRecord), rows)
        settings = config.model_copy(update={"tokens": result.tokens}).model_dump(mode="json")
        measured = MeasurementRecord(run_id=run_id, command=RECURRENCE_COMMAND, settings=settings, created_at=utc_now())
        session.merge(measured)
    return True
