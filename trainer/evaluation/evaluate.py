"""Evaluation of runs on held-out text: loss increase in the language model, routing share, and health of the experts.

Interventions on MLPs' outputs are measured together, in forward passes that start at the first changed block. Layers of
several runs can also be replaced one after another. Results are stored in the database.

Shapes: A interventions, S sequences, B sequences and R rows of a forward pass, L or T tokens of a sequence. I input
width, O output width, W width of the residual stream, K active, M entries of the mixing vector, V vocabulary.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sqlalchemy import Engine, and_, delete, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.config.analysis import EvaluateConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.sequences import fingerprint, sequences
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.jacobians import measure_jacobians
from mxd.trainer.evaluation.metrics import (
    EvaluatedText,
    LayerStatistics,
    SharedExperts,
    collect_statistics,
    continuation_agreement,
    find_shared_experts,
    measure_health,
)
from mxd.trainer.evaluation.results import (
    AddedLayer,
    Evaluation,
    JointEvaluation,
    LayerByLayer,
    SharedExpertAblation,
    find_warnings,
)
from mxd.trainer.language_model.mlp_hooks import LayerPass, Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.residuals import Residuals, residual_at, start_at
from mxd.trainer.layers.mxd import Routing, SparseLayer
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import EvaluationRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.storage.run_sets import check_disjoint_layers, code
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import finite

OutputFunction = Callable[[Tensor, Tensor], Tensor]
"""Maps an MLP's input [T, I] and output [T, O] to a new output [T, O]."""

Intervention = Mapping[int, OutputFunction]
"""Output functions of the changed layers. All other layers keep their MLPs."""

ORIGINAL: Intervention = {}


def zero_output(_x_TI: Tensor, output_TO: Tensor) -> Tensor:
    return torch.zeros_like(output_TO)


def constant_output(mean_O: Tensor) -> OutputFunction:
    return lambda _x_TI, output_TO: mean_O.to(output_TO).expand_as(output_TO)


def replaced_output(sparse_layer: SparseLayer) -> OutputFunction:
    """Replace the output by that of a sparse layer."""
    return lambda x_TI, output_TO: sparse_layer(MlpActivations(x_TI, output_TO).inputs_for(sparse_layer)).output_TO


def layer_outputs(
    sparse_layer: SparseLayer, statistics: LayerStatistics, shared: SharedExperts | None = None
) -> dict[str, OutputFunction]:
    """Return the output functions of a sparse layer by name. They share its pass over a sequence, and those that do not
    apply to the layer are left out.

    - replaced: output of the layer.
    - frozen: mixing vector frozen at its median: aC of an MxD, aW_dec of a transcoder.
    - constant: the constant mixing that fits the MLP best.
    - constant_dense: dense output frozen at its median, so that each expert adds a fixed direction.
    - without_shared, only_shared: the always-on experts ablated, or all others.
    """
    device, best = sparse_layer.table.device, statistics.best_constant
    mixing_M, dense_M = statistics.typical_mixing_M.to(device), statistics.typical_dense_M.to(device)
    shared_E = torch.tensor(list(shared.experts if shared and shared.always_on else ()), device=device)
    last: list[LayerPass] = []

    def masked(layer_pass: LayerPass, is_kept: Callable[[Tensor], Tensor]) -> Tensor:
        activations_TK, indices_TK = layer_pass.routing
        mask_TK = is_kept(torch.isin(indices_TK, shared_E))
        return sparse_layer.decode(layer_pass.dense_PM, Routing(activations_TK * mask_TK, indices_TK))

    outputs: dict[str, Callable[[LayerPass], Tensor]] = {
        "replaced": lambda it: it.output_PO,
        "frozen": lambda it: sparse_layer.decode_mixed(it.dense_PM, mixing_M.expand(len(it.dense_PM), -1)),
    }
    if best is not None:
        outputs["constant"] = lambda it: best.output(sparse_layer, it.dense_PM)
    if len(dense_M):
        outputs["constant_dense"] = lambda it: sparse_layer.decode_mixed(
            dense_M.expand(len(it.mixing_PM), -1), it.mixing_PM
        )
    if len(shared_E):
        outputs["without_shared"] = lambda it: masked(it, lambda is_shared_TK: ~is_shared_TK)
        outputs["only_shared"] = lambda it: masked(it, lambda is_shared_TK: is_shared_TK)

    def output(compute: Callable[[LayerPass], Tensor], x_TI: Tensor, output_TO: Tensor) -> Tensor:
        input_TI = MlpActivations(x_TI, output_TO).inputs_for(sparse_layer)
        if not last or last[0].x_STI is not input_TI:
            last[:] = [LayerPass(sparse_layer, input_TI)]
        return compute(last[0])

    return {name: partial(output, compute) for name, compute in outputs.items()}


class Losses(NamedTuple):
    """Metrics of each intervention on each sequence, [A, S]. The first intervention is the original."""

    ce: Floats
    """Mean next-token loss, in nats per token."""
    kl: Floats
    """Mean KL divergence of the next-token distribution from the original one, in nats per token."""
    agreement: Floats
    """Share of tokens with the same most probable next token as the original."""

    def increase(self, number: int) -> Floats:
        return np.asarray(self.ce[number] - self.ce[0])


LOGIT_BYTES = 1 << 30
"""Memory for the logits of a forward pass on a GPU, which decides how many sequences it takes."""


@torch.no_grad()
def measure_losses(text: EvaluatedText, interventions: Sequence[Intervention]) -> Losses:
    """Run the language model on a text under each intervention. The first one must be the original."""
    assert not interventions[0]
    changed, language_model, ids_SL, residuals = interventions[1:], text.language_model, text.ids_SL, text.residuals
    layers = {layer for intervention in changed for layer in intervention}
    first_layer = min(layers)
    functions = {layer: _mlp_function(changed, layer, layer == first_layer) for layer in layers}
    step = _sequences_per_pass(language_model, len(changed), ids_SL.shape[1])
    metrics: list[Tensor] = []
    for first in range(0, len(ids_SL), step):
        text.callbacks.check_cancelled("Evaluation cancelled; run the same command to continue.")
        ids_BL = ids_SL[first : first + step].to(language_model.device)
        original_BLV = _original_logits(language_model, residuals, first_layer, first, ids_BL)
        can_split = len(ids_BL) == 1 and language_model.can_split_row(first_layer)
        with (
            residuals.continued(first_layer, first, ids_BL, 1 if can_split else len(changed)) as ids_RL,
            language_model.replace_mlps(functions),
        ):
            logits_RLV = language_model.logits(ids_RL)
        changed_BALV = logits_RLV.unflatten(0, (len(ids_BL), len(changed)))
        for ids_L, original_LV, logits_ALV in zip(ids_BL, original_BLV, changed_BALV, strict=True):
            metrics.append(_compare(original_LV, logits_ALV, ids_L).cpu())
        done = (first + len(ids_BL)) * ids_SL.shape[1]
        text.callbacks.on_progress(done, ids_SL.numel(), f"{len(interventions)} interventions")
    return Losses(*(values.numpy() for values in torch.stack(metrics, dim=2).double()))


def _sequences_per_pass(language_model: LanguageModel, interventions: int, length: int) -> int:
    """On a CPU one sequence fills the cores; a GPU takes as many as there is memory for their logits."""
    if language_model.device.type == "cpu":
        return 1
    vocabulary: int = language_model.config.vocab_size
    return max(1, LOGIT_BYTES // (4 * interventions * length * vocabulary))


def _original_logits(
    language_model: LanguageModel, residuals: Residuals, layer: int, first: int, ids_BL: Tensor
) -> Tensor:
    """Logits [B, L, V] of the original model; the blocks are computed once per text, for whatever interventions."""
    end = len(language_model.architecture.blocks)
    if not residuals.can_continue(end):
        return language_model.logits(ids_BL)
    if not residuals.has(end, first, len(ids_BL)):
        with residuals.continued(layer, first, ids_BL) as ids_RL:
            residuals.store(end, first, final_BLW := residual_at(language_model, end, ids_RL))
        with start_at(language_model.architecture.blocks, end, final_BLW):
            return language_model.logits(ids_BL)
    with residuals.continued(end, first, ids_BL) as ids_RL:
        return language_model.logits(ids_RL)


def _compare(original_LV: Tensor, logits_ALV: Tensor, ids_L: Tensor) -> Tensor:
    """Loss, KL divergence and agreement of the original and each intervention, [3, 1 + A]. One by one, for memory."""
    original_LV, next_L1 = original_LV[:-1], ids_L[1:, None]
    total_L, top_L = original_LV.logsumexp(-1), original_LV.argmax(-1)
    p_LV = (original_LV - total_L[:, None]).exp_()
    losses = [(total_L - original_LV.gather(1, next_L1)[:, 0]).mean()]
    divergences, agreements = [torch.zeros_like(losses[0])], [torch.ones_like(losses[0])]
    for logits_LV in logits_ALV[:, :-1]:
        changed_L = logits_LV.logsumexp(-1)
        losses.append((changed_L - logits_LV.gather(1, next_L1)[:, 0]).mean())
        # KL = sum p (log p - log q); the two logarithms differ by the logits and by their normalisations.
        differences_L = torch.linalg.vecdot(p_LV, original_LV - logits_LV)
        divergences.append((differences_L - total_L + changed_L).mean().clamp_min(0))
        agreements.append((logits_LV.argmax(-1) == top_L).float().mean())
    return torch.stack([torch.stack(values) for values in (losses, divergences, agreements)])


def _mlp_function(interventions: Sequence[Intervention], layer: int, is_first: bool) -> MlpFunction:
    """MLP function with one row per sequence and intervention.

    At the first changed layer, the rows of a sequence are still equal: the interventions share the tensors of its first
    row, and there may be only one row.
    """
    count = len(interventions)

    def function(x_RTI: Tensor, mlp: Mlp) -> Tensor:
        output_RTO = mlp()
        inputs, outputs = list(x_RTI.float()), list(output_RTO.float())
        if is_first:
            starts = [0] if len(inputs) == 1 else range(0, len(inputs), count)
            inputs, outputs = ([rows[start] for start in starts for _ in range(count)] for rows in (inputs, outputs))
        changes = [change.get(layer) for change in interventions] * (len(inputs) // count)
        rows = zip(changes, inputs, outputs, strict=True)
        changed = [y_TO if change is None else change(x_TI, y_TO) for change, x_TI, y_TO in rows]
        return torch.stack(changed).to(output_RTO.dtype)

    return function


@dataclass(frozen=True)
class Measurement:
    """An evaluation, with the loss increase of each sequence."""

    result: Evaluation | JointEvaluation | LayerByLayer
    loss_increase_S: Floats
    subject: str
    """Name of what was evaluated, used as its key in the database."""


@dataclass(frozen=True)
class Evaluator(EvaluatedText):
    """A text with the settings of its evaluations, and whatever several of them share."""

    config: EvaluateConfig
    bootstrap: Bootstrap
    baselines: dict[int, Losses] = field(default_factory=dict)
    """Layer -> losses of the original, of a zero output and of the mean output, which all runs of the layer share."""

    @classmethod
    def open(cls, config: EvaluateConfig, language_model: LanguageModel, callbacks: Callbacks) -> Self:
        """Read the text. Raises UserError if the text is too short, or cannot be read."""
        stream = sequences(config.text, language_model.tokenizer, config.tokens, config.seed, "sampled")
        ids_SL = torch.from_numpy(np.stack(list(stream))).long()
        bootstrap = Bootstrap(len(ids_SL), config.resamples, config.seed)
        return cls(language_model, ids_SL, callbacks, Residuals(language_model), config, bootstrap)


def evaluate(evaluator: Evaluator, run: Run, seen_text: bool) -> Measurement:
    """Evaluate a run that replaces its layer's MLP. ``seen_text``: whether the run was trained on the text. Raises
    UserError if the run cannot be used with the requested K."""
    config, bootstrap = evaluator.config, evaluator.bootstrap
    layer = run.config.layer
    sparse_layer = run.at_k(config.k).to(evaluator.language_model.device_of(layer))
    statistics = collect_statistics(evaluator, layer, sparse_layer)
    shared = find_shared_experts(statistics, config.always_on)
    measured = layer_outputs(sparse_layer, statistics, shared)
    losses = _measure_losses(evaluator, layer, statistics, tuple(measured.values()))
    increases = {name: losses.increase(number) for number, name in enumerate((*BASELINES, *measured), start=1)}
    zero_S, mean_S, replaced_S = (increases[name] for name in (*BASELINES, "replaced"))
    without, only = (
        float(increases[name].mean()) if name in increases else None for name in ("without_shared", "only_shared")
    )
    shares = {name: bootstrap.ratio(increases[of], mean_S) for name, of in SHARES.items() if of in increases}
    errors = statistics.errors
    unexplained = bootstrap.ratio(errors["squared_error"], statistics.deviation_S)
    intervals = {
        "normalized_mse": bootstrap.mean(errors["normalized_mse"]),
        "paper_error": bootstrap.mean(errors["paper_error"]),
        "variance_explained": Interval(1 - unexplained.value, 1 - unexplained.high, 1 - unexplained.low),
        "l0": bootstrap.mean(errors["l0"]),
        "kl": bootstrap.mean(losses.kl[3]),
        "agreement": bootstrap.mean(losses.agreement[3]),
        "ce_frozen": bootstrap.mean(losses.ce[4]),
        **shares,
    }
    health = measure_health(sparse_layer, statistics, config.seed)
    continuations = continuation_agreement(evaluator, {layer: sparse_layer}, config.prompts)
    result = Evaluation(
        run=run.name,
        method=run.config.method,
        language_model=run.config.language_model,
        layer=layer,
        num_experts=sparse_layer.config.num_experts,
        k=sparse_layer.config.k,
        trained_k=run.layer.config.k,
        min_k=sparse_layer.config.min_k,
        parameters=sparse_layer.num_parameters,
        seed=run.config.seed,
        trained_tokens=run.config.tokens,
        text=config.text.dataset,
        tokens=evaluator.ids_SL.numel(),
        sequences=len(evaluator.ids_SL),
        seen_text=seen_text,
        **dict(zip(LOSSES, losses.ce.mean(axis=1).tolist(), strict=False)),
        **{name: interval.value for name, interval in intervals.items() if name not in LOSSES},
        loss_increase=bootstrap.mean(replaced_S),
        loss_recovered_zero=bootstrap.ratio(zero_S - replaced_S, zero_S),
        loss_recovered_mean=bootstrap.ratio(mean_S - replaced_S, mean_S),
        dead_share=health.load.dead_share,
        intervals=intervals,
        continuations={str(length): share for length, share in continuations.items()},
        shared_expert=SharedExpertAblation(**asdict(shared), loss_increase_without=without, loss_increase_only=only),
        health=health,
        warnings=(),
        jacobian=measure_jacobians(evaluator, layer, sparse_layer, config.jacobian_tokens, bootstrap, config.seed),
    )
    result = replace(result, warnings=find_warnings(result, None if only is None else 1 - only / float(mean_S.mean())))
    return Measurement(result, replaced_S, subject_name(run.name, config.k))


BASELINES = ("zeroed", "mean_ablated")
"""Interventions that all runs of a layer share. The run's own follow."""

LOSSES = ("ce_original", "ce_zeroed", "ce_mean_ablated", "ce_replaced", "ce_frozen")
"""Fields of the losses under the first interventions, in the order of ``_measure_losses``."""

SHARES = {"routing_share": "frozen", "strict_routing_share": "constant", "decoder_share": "constant_dense"}
"""Metric -> the intervention whose loss increase it compares with that of mean ablation."""


def _measure_losses(
    evaluator: Evaluator, layer: int, statistics: LayerStatistics, interventions: Sequence[OutputFunction]
) -> Losses:
    """Losses of the original model, of a zero output, of the mean output and of the run's own interventions."""
    baselines = evaluator.baselines.get(layer)
    shared = () if baselines else (zero_output, constant_output(statistics.output_O))
    losses = measure_losses(evaluator, [ORIGINAL, *({layer: output} for output in (*shared, *interventions))])
    if baselines:
        return Losses._make(np.concatenate([first, own[1:]]) for first, own in zip(baselines, losses, strict=True))
    evaluator.baselines[layer] = Losses._make(values[: 1 + len(shared)] for values in losses)
    return losses


def subject_name(run: str, k: int | None) -> str:
    """Key of an evaluation in the database: the run's name, with K if it is not the run's own."""
    return run if k is None else f"{run} at K {k}"


def evaluate_jointly(evaluator: Evaluator, runs: Sequence[Run], individual_losses: Sequence[float]) -> Measurement:
    """Evaluate several runs that replace their layers' MLPs at the same time. ``individual_losses`` are their loss
    increases on their own. Raises UserError if two runs are of the same layer."""
    check_disjoint_layers(runs)
    replaced, zeros, means = dict(ORIGINAL), dict(ORIGINAL), dict(ORIGINAL)
    for run in runs:
        layer = run.config.layer
        sparse_layer = run.layer.to(evaluator.language_model.device_of(layer))
        statistics = collect_statistics(evaluator, layer, sparse_layer)
        replaced[layer] = replaced_output(sparse_layer)
        zeros[layer], means[layer] = zero_output, constant_output(statistics.output_O)
    losses = measure_losses(evaluator, [ORIGINAL, zeros, means, replaced])
    mean_S, replaced_S = losses.increase(2), losses.increase(3)
    result = JointEvaluation(
        run=" + ".join(run.name for run in runs),
        runs=tuple(run.name for run in runs),
        text=evaluator.config.text.dataset,
        tokens=evaluator.ids_SL.numel(),
        **dict(zip(LOSSES, losses.ce.mean(axis=1).tolist(), strict=False)),
        loss_increase=evaluator.bootstrap.mean(replaced_S),
        summed_loss_increase=sum(individual_losses),
        loss_recovered_mean=evaluator.bootstrap.ratio(mean_S - replaced_S, mean_S),
        kl=float(losses.kl[3].mean()),
        agreement=float(losses.agreement[3].mean()),
    )
    return Measurement(result, replaced_S, result.run)


def is_training_text(text: TextConfig, trained: TextConfig) -> bool:
    """Return whether ``text`` is the training text or a part of its folder. False if that no longer exists."""
    path, trained_path = Path(os.path.expanduser(text.dataset)), Path(os.path.expanduser(trained.dataset))
    if path.exists() and trained_path.is_dir() and path.resolve().is_relative_to(trained_path.resolve()):
        return True
    try:
        return fingerprint(text) == fingerprint(trained)
    except UserError:
        return False


def check_held_out(name: str, text: TextConfig, trained: TextConfig) -> None:
    """Check that a run was not trained on a text. Raises UserError if it was."""
    if is_training_text(text, trained):
        raise UserError(
            f"{name} was trained on {text.dataset}, so results would be optimistic. Pass held-out data with --dataset, "
            "or --seen-text to evaluate anyway (the result is flagged)."
        )


def layer_by_layer_subject(runs: Sequence[Run]) -> str:
    """Key of the evaluation in the database."""
    return "layer by layer: " + " + ".join(run.name for run in sort_by_layer(runs))


def sort_by_layer(runs: Sequence[Run]) -> list[Run]:
    """Sort runs by layer. Raises UserError if two runs are of the same layer."""
    check_disjoint_layers(runs)
    return sorted(runs, key=lambda run: run.config.layer)


def evaluate_layer_by_layer(
    evaluator: Evaluator, runs: Sequence[Run], individual_losses: Sequence[float]
) -> Measurement:
    """Evaluate the first run, then the first two, and so on, all in one pass over the text. ``individual_losses`` are
    their loss increases on their own. Raises UserError if two runs are of the same layer."""
    individual = {run.name: loss for run, loss in zip(runs, individual_losses, strict=True)}
    ordered = sort_by_layer(runs)
    interventions: list[Intervention] = [ORIGINAL]
    for run in ordered:
        sparse_layer = run.layer.to(evaluator.language_model.device_of(run.config.layer))
        interventions.append({**interventions[-1], run.config.layer: replaced_output(sparse_layer)})
    losses = measure_losses(evaluator, interventions)
    steps = tuple(
        AddedLayer(
            run=run.name,
            layer=run.config.layer,
            loss_increase=evaluator.bootstrap.mean(losses.increase(count)),
            kl=float(losses.kl[count].mean()),
            agreement=float(losses.agreement[count].mean()),
            summed_loss_increase=sum(individual[replaced.name] for replaced in ordered[:count]),
        )
        for count, run in enumerate(ordered, start=1)
    )
    result = LayerByLayer(
        run=layer_by_layer_subject(runs),
        runs=tuple(run.name for run in ordered),
        fine_tuned=all(run.config.parents for run in runs),
        text=evaluator.config.text.dataset,
        tokens=evaluator.ids_SL.numel(),
        ce_original=float(losses.ce[0].mean()),
        steps=steps,
    )
    return Measurement(result, losses.increase(len(ordered)), result.run)


def load_evaluation(
    database: Engine, subject: str, fingerprint: str, config: EvaluateConfig, weights: str
) -> dict[str, Any] | None:
    """Return the stored result with the same subject, text, settings and weights, or None if there is none."""
    with Session(database) as session:
        record = session.scalar(select(EvaluationRecord).where(_same_evaluation(subject, fingerprint)))
        if record is None or record.weights != weights or EvaluateConfig.model_validate(record.settings) != config:
            return None
        result: dict[str, Any] = record.result
        lacks_jacobian = config.jacobian_tokens > 0 and result.get("jacobian") is None
        # A result of one run may have been stored before the newest measures existed.
        is_older = "routing_share" in result and ("decoder_share" not in result or lacks_jacobian)
        return None if is_older else result


def _same_evaluation(subject: str, fingerprint: str) -> Any:
    return and_(EvaluationRecord.subject == subject, EvaluationRecord.fingerprint == fingerprint)


def write_evaluation(
    database: Engine, measurement: Measurement, first_run: str, config: EvaluateConfig, fingerprint: str, weights: str
) -> dict[str, Any]:
    """Store a result under ``first_run``, replacing the previous one of the same subject on the same text. Return it as
    stored, with the code that measured it as ``provenance``. Raises NotFoundError if the run is not in the database."""
    result: dict[str, Any] = {**finite(asdict(measurement.result)), "provenance": code()}
    with writing(database) as session:
        run_id = find_record(session, first_run).id
        session.execute(delete(EvaluationRecord).where(_same_evaluation(measurement.subject, fingerprint)))
        session.add(
            EvaluationRecord(
                run_id=run_id,
                subject=measurement.subject,
                text=config.text.dataset,
                fingerprint=fingerprint,
                settings=config.model_dump(mode="json"),
                weights=weights,
                result=result,
                sequences=measurement.loss_increase_S.astype("<f4").tobytes(),
                created_at=utc_now(),
            )
        )
    return result
