"""Ablation and steering effects of every active expert of an indexed run, measured on its stored examples.

**Examples.** The index stores random examples from each activation bin. A mean weighted by the number of active tokens
in each bin estimates the mean over all tokens on which the expert is active, not only over its top examples. If all
experts are measured, most of these examples are replaced by as many random active tokens of a few sequences, because a
forward pass of a sequence costs more than many interventions in it.

**Interventions.** Four, at one token of a sequence, all in one forward pass of the sequence (see ``variant_tokens``).
Each keeps the original MLP's output and adds one vector at its token:

- ablation, −a_n (c_n * zD): remove the expert's contribution.
- amplification, +u_n (c_n * zD): raise its activation by u_n, its 99th percentile.
- random expert, +u_m (c_m * zD): raise a random expert m of similar density by its own 99th percentile.
- random direction, +r: add a random direction with the norm of the amplification.

Shapes: P examples, M examples of one sequence or one expert, N experts, S sequences, T tokens, R rows, K active
experts, I input width, O output width, W residual width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from mxd.trainer.analysis.indexing.statistics import ActivePairs, Floats, Ints, active_pairs, positions_in_groups
from mxd.trainer.config.analysis import AblationConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.units import column_values, random_experts
from mxd.trainer.language_model.kv_cache import variant_tokens
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import Routing, SparseLayer
from mxd.trainer.storage.database.expert_columns import ABLATION_COLUMNS, ExpertRecord
from mxd.trainer.storage.database.open import delete_ablations, writing
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    ExampleRecord,
    IndexRecord,
    MeasurementRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks, Steps, completed


class SampledExamples(NamedTuple):
    """Random examples of all experts; each field [P]."""

    expert: Ints
    sequence: Ints
    position: Ints
    weight: Floats
    """Number of the expert's active tokens that the example represents."""

    def select(self, chosen_P: Ints) -> "SampledExamples":
        return SampledExamples._make(column[chosen_P] for column in self)


def get_indexed_run(session: Session, name: str) -> RunRecord:
    """Return the record of an indexed run. Raises UserError if the run is not indexed."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None or session.get(IndexRecord, run.id) is None:
        raise UserError(f"{name} is not indexed. Run 'mxd index {name}'.")
    return run


def sample_examples(session: Session, run: RunRecord, examples_per_bin: int) -> SampledExamples:
    """Read up to ``examples_per_bin`` random examples from each activation bin of each expert, sorted by expert. Raises
    UserError if the index has no random examples."""
    query = (
        select(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.sequence, ExampleRecord.position)
        .where(ExampleRecord.run_id == run.id, ExampleRecord.bin > 0, ExampleRecord.rank < examples_per_bin)
        .order_by(ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank)
    )
    rows = np.array([tuple(row) for row in session.execute(query)], np.int64).reshape(-1, 4)
    if not len(rows):
        raise UserError(
            f"The index of {run.name} has no random examples. Run 'mxd index {run.name} --examples-per-bin 1'."
        )
    expert, _, sequence, position = rows.T
    _, group, counts = np.unique(rows[:, :2], axis=0, return_inverse=True, return_counts=True)
    records = select(ExpertRecord).where(ExpertRecord.run_id == run.id).order_by(ExpertRecord.expert)
    bins = [record.bins for record in session.scalars(records)]
    active = np.array([bins[number][of_bin - 1][2] for number, of_bin in rows[:, :2].tolist()], np.float64)
    return SampledExamples(expert, sequence, position, active / counts[group.reshape(-1)])


def select_experts(
    examples: SampledExamples, experts: tuple[int, ...], other_N: Ints, run: RunRecord
) -> SampledExamples:
    """Keep the examples of some experts and of the random ones ``other_N`` that are shown beside them. Raises UserError
    if an expert is unknown or has no examples."""
    missing = sorted(set(experts) - set(examples.expert.tolist()))
    if missing:
        raise UserError(
            f"Expert {missing[0]} of {run.name} has no examples. Choose experts from 0 to {run.num_experts - 1} "
            "that are not dead."
        )
    chosen = np.union1d(experts, other_N[list(experts)])
    return examples.select(np.flatnonzero(np.isin(examples.expert, chosen)))


def grouped(value_P: Ints) -> Iterator[tuple[int, Ints]]:
    """Each value with the places that have it, ascending."""
    order = np.argsort(value_P, kind="stable")
    values, starts = np.unique(value_P[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=True)


def read_sequences(session: Session, run: RunRecord) -> dict[int, list[int]]:
    query = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    return {number: np.frombuffer(ids, "<u4").tolist() for number, ids in session.execute(query)}


SHARED_PAIRS = 60
"""Pairs of active token and expert in the shared sequences, for each measured example. An expert of a tenth of the mean
density then has as many active tokens there as examples, or more."""
SEQUENCES_PER_ROUTING = 16


def share_sequences(
    examples: SampledExamples,
    sequences: dict[int, list[int]],
    run: Run,
    language_model: LanguageModel,
    seed: int,
    callbacks: Callbacks = NO_CALLBACKS,
) -> SampledExamples:
    """Replace the examples of most experts by as many active tokens of equal weight from a few random sequences.

    Of M tokens, one is drawn from each M-th of the expert's tokens there, in order of activation. Experts that are
    active on fewer tokens there keep their examples. All experts do if that would not save forward passes.
    """
    generator = np.random.default_rng([seed, len(sequences)])
    order = generator.permutation(sorted(sequences))
    pairs = np.cumsum([len(sequences[number]) * run.layer.config.k for number in order.tolist()])
    shared = order[: int(np.searchsorted(pairs, SHARED_PAIRS * len(examples.expert))) + 1]
    if len(shared) > len(np.unique(examples.sequence)) // 4:
        return examples
    parts = list[ActivePairs]()
    for start in range(0, len(shared), SEQUENCES_PER_ROUTING):
        callbacks.check_cancelled()
        callbacks.on_progress(0, len(examples.expert), f"choosing them: {start} of {len(shared)} sequences")
        parts.append(_active_pairs(shared[start : start + SEQUENCES_PER_ROUTING], sequences, run, language_model))
    active = ActivePairs.concatenate(parts)
    sorted_P = np.lexsort((active.activation, active.expert))
    wanted_N = np.bincount(examples.expert, minlength=run.layer.config.num_experts)
    found_N = np.bincount(active.expert, minlength=len(wanted_N))
    enough_N = found_N >= wanted_N
    expert_M = np.repeat(np.arange(len(wanted_N)), np.where(enough_N, wanted_N, 0))
    part_M = positions_in_groups(expert_M)
    rank_M = ((part_M + generator.random(len(part_M))) * found_N[expert_M] / wanted_N[expert_M]).astype(np.int64)
    taken_M = sorted_P[(np.cumsum(found_N) - found_N)[expert_M] + rank_M]
    kept = examples.select(np.flatnonzero(~enough_N[examples.expert]))
    drawn = SampledExamples(expert_M, active.sequence[taken_M], active.position[taken_M], np.ones(len(taken_M)))
    joined = SampledExamples(*(np.concatenate(columns) for columns in zip(kept, drawn, strict=True)))
    return joined.select(np.argsort(joined.expert, kind="stable"))


@torch.no_grad()
def _active_pairs(
    numbers: Ints, sequences: dict[int, list[int]], run: Run, language_model: LanguageModel
) -> ActivePairs:
    """All active pairs of some sequences."""
    rows = [torch.tensor(sequences[number]) for number in numbers.tolist()]
    ids_ST = pad_sequence(rows, batch_first=True)  # padding on the right changes no earlier token
    x_TI = language_model.mlp_inputs([run.config.layer], ids_ST)[run.config.layer]
    pairs, token_P = active_pairs(run.layer.route(x_TI.float()), ids_ST.shape[1], numbers)
    length_P = np.array([len(row) for row in rows])[token_P // ids_ST.shape[1]]
    return pairs.select(pairs.position < length_P)


NUM_INTERVENTIONS = 4


class InterventionEffects(NamedTuple):
    """Effects at each example, [M], in nats."""

    loss_increase: Tensor
    """Increase of the next token's loss under ablation; NaN at the end of the sequence."""
    kl_ablated: Tensor
    """KL divergence of the next-token distribution under ablation from the original one."""
    kl_amplified: Tensor
    kl_random_expert: Tensor
    kl_random_direction: Tensor
    share: Tensor
    """The expert's share of the summed norms of all active experts' contributions; no unit."""
    contribution: Tensor
    """Contribution of the expert to the MLP's output, [M, O]."""
    added: Tensor
    """Its part of the residual stream after the last block, by what the block adds because of it, [M, W]. NaN if the
    architecture has no direct effects."""
    residual: Tensor
    """Original residual stream after the last block, [M, W]."""


@dataclass(eq=False)
class Interventions:
    """Additions to the MLP's output, for each example and intervention at its variant or in its row."""

    seed: int
    position_M: Tensor
    expert_M: Tensor
    unit_M: Tensor
    """99th percentile of the expert's activation, u_n."""
    random_expert_M: Tensor
    random_unit_M: Tensor
    """99th percentile of the random expert's activation, u_m."""

    def __call__(self, layer_pass: LayerPass) -> Tensor:
        """Added vectors, [1, T + 4 M, O], or [1 + 4 M, T, O] if each has a row behind the original one."""
        index_M = self.position_M.to(layer_pass.x_STI.device)
        added_RO = self._vectors(layer_pass.at(index_M))
        added_STO = added_RO.new_zeros(*layer_pass.x_STI.shape[:2], added_RO.shape[1])
        if len(added_STO) == 1:
            added_STO[0, -len(added_RO) :] = added_RO
        else:
            row_R = torch.arange(1, len(added_STO), device=index_M.device)
            added_STO[row_R, index_M.repeat(NUM_INTERVENTIONS)] = added_RO
        return added_STO

    def _vectors(self, tokens: LayerPass) -> Tensor:
        """The vectors of each intervention at its token, [4 M, O]."""
        device = tokens.dense_PM.device

        def contribution(expert_M: Tensor, activation_M: Tensor) -> Tensor:
            activation_M1 = activation_M.to(tokens.dense_PM).unsqueeze(1)
            return tokens.contribution(Routing(activation_M1, expert_M.to(device).unsqueeze(1)))

        is_expert_MK = tokens.routing.indices_TK == self.expert_M.to(device).unsqueeze(1)
        norms_MK = tokens.sparse_layer.contribution_norms(tokens.dense_PM, tokens.routing)
        self.share_M = (norms_MK * is_expert_MK).sum(dim=1) / norms_MK.sum(dim=1).clamp_min(1e-12)
        activation_M = (tokens.routing.activations_TK * is_expert_MK).sum(dim=1)
        self.contribution_MO = contribution(self.expert_M, activation_M)
        amplified_MO = contribution(self.expert_M, self.unit_M)
        random_MO = contribution(self.random_expert_M, self.random_unit_M)
        generator = torch.Generator().manual_seed(self.seed)
        noise_MO = F.normalize(torch.randn(amplified_MO.shape, generator=generator), dim=1).to(device)
        direction_MO = noise_MO * amplified_MO.norm(dim=1, keepdim=True)
        return torch.cat([-self.contribution_MO, amplified_MO, random_MO, direction_MO])


@torch.no_grad()
def measure_interventions(
    language_model: LanguageModel, layer: int, sparse_layer: SparseLayer, ids: list[int], added: Interventions
) -> InterventionEffects:
    """Apply all interventions to the sequence ``ids``: as variants of its tokens, or as rows where that cannot be."""
    positions_M = added.position_M
    prefix = ids[: int(positions_M.max()) + 1]
    position_R = positions_M.repeat(NUM_INTERVENTIONS)
    with ExitStack() as stack:
        variants, num_rows = list[Tensor](), 1 + len(position_R)
        if language_model.can_append_variants(layer):
            variants = stack.enter_context(variant_tokens(language_model.architecture.blocks, layer, position_R))
            num_rows = 1
        language_model.linear_kernels.apply(stack)
        stack.enter_context(language_model.replace_mlps({layer: EditedMlp(sparse_layer, added)}))
        residual_QTW = language_model.residual(torch.tensor([prefix] * num_rows))
    changed_RW = variants[0] if variants else residual_QTW[torch.arange(1, num_rows), position_R]
    additions = language_model.additions
    factor = additions.passed_on(layer) if additions.has_direct_effects(layer) else float("nan")
    added_MW = factor * additions.of_vectors(layer, prefix, positions_M.tolist(), added.contribution_MO)
    original_MW = residual_QTW[0, positions_M.to(residual_QTW.device)]
    original_MV, *changed = language_model.unembed(torch.cat([original_MW, changed_RW])).split(len(positions_M))
    p_MV = original_MV.softmax(dim=-1)
    rises = [changed_MV - original_MV for changed_MV in changed]
    (normaliser_M, *_), divergences = zip(*(_normaliser_and_kl(p_MV, rise_MV) for rise_MV in rises), strict=True)
    # Rise of the next token's log p; NaN at the end of the sequence.
    next_M = torch.tensor([*ids, -1])[positions_M + 1].to(normaliser_M.device)
    log_p_M = rises[0].gather(1, next_M.clamp_min(0).unsqueeze(1))[:, 0] - normaliser_M
    loss_M = -log_p_M.masked_fill(next_M < 0, float("nan"))
    measured = (added.share_M, added.contribution_MO, added_MW, original_MW.float())
    return InterventionEffects._make((loss_M, *divergences, *measured))


def _normaliser_and_kl(p_MV: Tensor, rise_MV: Tensor) -> tuple[Tensor, Tensor]:
    """Log E exp(rise) of the logits' rise over the original distribution, and the KL divergence of the changed one from
    it, log E exp(rise) - E rise: without the rounding of two log p."""
    mean_M = torch.linalg.vecdot(p_MV, rise_MV)
    largest_M1 = rise_MV.amax(dim=1, keepdim=True)
    grown_M = torch.linalg.vecdot(p_MV, (rise_MV - largest_M1).exp_())
    normaliser_M = grown_M.log() + largest_M1[:, 0]
    return normaliser_M, (normaliser_M - mean_M).clamp_min(0)


NUM_TOKENS = 12
MEANS = ("kl_ablated", "kl_amplified", "kl_random_expert", "kl_random_direction", "output_share")
"""Columns of ``AblationRecord`` that are weighted means of the fields of ``InterventionEffects``."""


def summarise(
    language_model: LanguageModel, expert: int, random_expert: int, effects: InterventionEffects, weight_M: Tensor
) -> dict[str, Any]:
    """Average the effects of one expert over its examples: a row of ``AblationRecord`` without its run."""
    weight_M = (weight_M / weight_M.sum()).to(effects.share)

    losses_M, has_next_M = effects.loss_increase, ~effects.loss_increase.isnan()
    total = (losses_M[has_next_M] * weight_M[has_next_M]).sum()
    promoted, suppressed = _promoted_and_suppressed(language_model, effects, weight_M)
    measured = dict(zip(MEANS, effects[1 : 1 + len(MEANS)], strict=True))
    return {
        "expert": expert,
        "examples": len(weight_M),
        "loss_increase": float(total / weight_M[has_next_M].sum()) if bool(has_next_M.any()) else None,
        **{name: float((values_M * weight_M).sum()) for name, values_M in measured.items()},
        "random_expert": random_expert,
        "input_dependence": input_dependence(effects.contribution, weight_M),
        "promoted": promoted,
        "suppressed": suppressed,
    }


def input_dependence(contribution_MO: Tensor, weight_M: Tensor) -> float:
    """Share of the contributions' squared norm outside their mean direction; 0 if all are zero."""
    whole = float((contribution_MO.square().sum(dim=1) * weight_M).sum())
    mean_O = (contribution_MO * weight_M.unsqueeze(1)).sum(dim=0)
    length = float(mean_O.norm())
    if whole <= 0 or length <= 0:
        return float(whole > 0)
    along = float(((contribution_MO @ (mean_O / length)).square() * weight_M).sum())
    return min(1.0, max(0.0, 1 - along / whole))


def _promoted_and_suppressed(
    language_model: LanguageModel, effects: InterventionEffects, weight_M: Tensor
) -> tuple[list[list[float]], list[list[float]]]:
    """Tokens whose log p the contribution raises and lowers most, on average. None without direct effects."""
    if bool(effects.added.isnan().any()):
        return [], []
    residuals_RW = torch.cat([effects.residual, effects.residual - effects.added])
    with_MV, without_MV = language_model.unembed(residuals_RW).log_softmax(dim=-1).chunk(2)
    change_V = ((with_MV - without_MV) * weight_M.to(with_MV).unsqueeze(1)).sum(dim=0)
    return _strongest(change_V, 1.0), _strongest(change_V, -1.0)


def _strongest(change_V: Tensor, sign: float) -> list[list[float]]:
    top = (change_V * sign).topk(min(NUM_TOKENS, len(change_V)))
    return [[token, sign * value] for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


EXPERTS_PER_CHUNK = 4096
"""Experts whose contributions and residual streams are in memory at a time."""
EXAMPLES_PER_FORWARD = 64
EXAMPLES_OF_ROWS = 16
"""The same where each intervention is a row of its own, which takes the memory of a whole sequence."""


@dataclass(frozen=True)
class AblationResult:
    """Summary that ``mxd ablate`` reports: medians over the experts that are active in the index."""

    run: str
    experts: int
    examples: int
    loss_increase: float
    kl_amplified: float
    kl_random_expert: float
    kl_random_direction: float
    input_dependence: float


def build_ablations(
    run: Run,
    config: AblationConfig,
    language_model: LanguageModel,
    database: Engine,
    *,
    callbacks: Callbacks = NO_CALLBACKS,
) -> AblationResult:
    """Measure all active experts or the chosen ones, and replace their stored results in one transaction.

    Raises:
        UserError: the run is not indexed, was trained on another language model, or has no examples of a chosen
            expert.
        CancelledError: the task was cancelled. Previous results are unchanged.
    """
    return completed(ablation_in_steps(run, config, language_model, database, callbacks), callbacks)


def ablation_in_steps(
    run: Run,
    config: AblationConfig,
    language_model: LanguageModel,
    database: Engine,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Steps[AblationResult]:
    """``build_ablations`` in steps of one forward pass of one sequence. Yields numbers of examples."""
    check_fits(language_model, run)
    with Session(database) as session:
        record = get_indexed_run(session, run.name)
        indexed_at = session.get_one(IndexRecord, record.id).created_at
        density_N, p99_N = (column_values(session, record, it) for it in (ExpertRecord.density, ExpertRecord.p99))
        drawn = (random_experts(density_N, expert, seed=config.seed) for expert in range(len(density_N)))
        other_N = np.array([next(iter(others), expert) for expert, others in enumerate(drawn)])
        examples = sample_examples(session, record, config.examples_per_bin)
        if config.experts:
            examples = select_experts(examples, config.experts, other_N, record)
        sequences = read_sequences(session, record)
        run_id = record.id
    run.layer.to(language_model.device_of(run.config.layer))
    if not config.experts:
        examples = share_sequences(examples, sequences, run, language_model, config.seed, callbacks)
    done, rows = 0, list[dict[str, Any]]()
    yield done, (total := len(examples.expert))
    appends = language_model.can_append_variants(run.config.layer)
    size = EXAMPLES_PER_FORWARD if appends else EXAMPLES_OF_ROWS
    for low in range(0, len(density_N), EXPERTS_PER_CHUNK):
        chunk = examples.select(np.flatnonzero((examples.expert >= low) & (examples.expert < low + EXPERTS_PER_CHUNK)))
        order, parts = list[Ints](), list[InterventionEffects]()
        for sequence, own in grouped(chunk.sequence):
            for start in range(0, len(own), size):
                order.append(own[start : start + size])
                expert, position = chunk.expert[order[-1]], chunk.position[order[-1]]
                other = other_N[expert]
                columns = (position, expert, p99_N[expert], other, p99_N[other])
                seed = int(np.random.SeedSequence([config.seed, sequence]).generate_state(1)[0])
                interventions = Interventions(seed, *map(torch.from_numpy, columns))
                ids, layer = sequences[sequence], run.config.layer
                effects = measure_interventions(language_model, layer, run.layer, ids, interventions)
                # To the CPU in one go: averaging waits for every number, and a dispatched model has two devices.
                parts.append(InterventionEffects(*(values.cpu() for values in effects)))
                yield (done := done + len(expert)), total
        if not parts:
            continue
        sorted_P = torch.from_numpy(np.argsort(np.concatenate(order)))
        joined = InterventionEffects(*(torch.cat(values)[sorted_P] for values in zip(*parts, strict=True)))
        for number, own in grouped(chunk.expert):
            effects = InterventionEffects(*(values[torch.from_numpy(own)] for values in joined))
            weight_M = torch.from_numpy(chunk.weight[own]).float()
            row = summarise(language_model, number, int(other_N[number]), effects, weight_M)
            rows.append({"run_id": run_id, **row})
    with writing(database) as session:
        index = session.get(IndexRecord, run_id)
        if index is None or index.created_at != indexed_at:
            raise UserError(f"Run '{run.name}' was indexed again or removed meanwhile. Measure it again.")
        _write(session, run_id, config, rows)

    def median(name: str) -> float:
        values = [row[name] for row in rows if row[name] is not None]
        return float(np.median(values)) if values else float("nan")

    medians = {field.name: median(field.name) for field in fields(AblationResult)[3:]}
    return AblationResult(run.name, len(rows), sum(row["examples"] for row in rows), **medians)


def _write(session: Session, run_id: int, config: AblationConfig, rows: Sequence[dict[str, Any]]) -> None:
    chosen = config.experts
    delete_ablations(session, run_id, [row["expert"] for row in rows] if chosen else None)
    earlier = session.get(MeasurementRecord, (run_id, "ablate"))
    settings = config.model_dump(mode="json")
    if chosen and earlier is not None:  # the rows of other experts stay, so the settings name these, too
        before = earlier.settings.get("experts")
        settings["experts"] = sorted({*before, *chosen}) if before else []
    session.merge(MeasurementRecord(run_id=run_id, command="ablate", settings=settings, created_at=utc_now()))
    if rows:
        session.execute(insert(AblationRecord), rows)
        columns = ("run_id", "expert", *ABLATION_COLUMNS)
        session.execute(update(ExpertRecord), [{name: row[name] or 0.0 for name in columns} for row in rows])
