"""Evaluation of runs on held-out text: loss increase in the language model, routing share, and health of the experts.

Layers of several runs can also be replaced one after another. Results are stored in the database.

Shapes: S sequences, L or T tokens of a sequence, I input width, O output width.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sqlalchemy import Engine, and_, delete, select
from sqlalchemy.orm import Session
from torch import Tensor

from mxd.trainer.config import EvaluateConfig, TextConfig
from mxd.trainer.data.documents import fingerprint
from mxd.trainer.data.sequences import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.health import find_shared_experts, measure_health
from mxd.trainer.evaluation.interventions import (
    ORIGINAL,
    Intervention,
    Losses,
    OutputFunction,
    constant_output,
    layer_outputs,
    loss_increases,
    measure_losses,
    zero_output,
)
from mxd.trainer.evaluation.jacobians import measure_jacobians
from mxd.trainer.evaluation.metrics import EvaluatedText, LayerStatistics, collect_statistics, continuation_agreement
from mxd.trainer.evaluation.results import (
    AddedLayer,
    Evaluation,
    JointEvaluation,
    LayerByLayer,
    SharedExpertAblation,
    find_warnings,
)
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import EvaluationRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.storage.run_sets import check_disjoint_layers, code
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import finite


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
    def open(cls, config: EvaluateConfig, language_model: LanguageModel, callbacks: Callbacks) -> Evaluator:
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
    increases = {name: loss_increases(losses, number) for number, name in enumerate((*BASELINES, *measured), start=1)}
    zero_S, mean_S, replaced_S = (increases[name] for name in (*BASELINES, "replaced"))
    without, only = (
        float(increases[name].mean()) if name in increases else None for name in ("without_shared", "only_shared")
    )
    shares = {
        name: bootstrap.ratio(increases[output], mean_S) for name, output in SHARES.items() if output in increases
    }
    intervals = _reconstruction_intervals(evaluator, statistics) | {
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
        **{name: intervals[name].value for name in PLAIN_VALUES},
        loss_increase=bootstrap.mean(replaced_S),
        loss_recovered_zero=bootstrap.ratio(zero_S - replaced_S, zero_S),
        loss_recovered_mean=bootstrap.ratio(mean_S - replaced_S, mean_S),
        dead_share=health.load.dead_share,
        intervals=intervals,
        continuations={str(length): share for length, share in continuations.items()},
        shared_expert=SharedExpertAblation(**asdict(shared), loss_increase_without=without, loss_increase_only=only),
        health=health,
        warnings=(),
        strict_routing_share=shares["strict_routing_share"].value if "strict_routing_share" in shares else None,
        decoder_share=shares["decoder_share"].value if "decoder_share" in shares else None,
        jacobian=measure_jacobians(evaluator, layer, sparse_layer, config.jacobian_tokens, bootstrap, config.seed),
    )
    result = replace(result, warnings=find_warnings(result, None if only is None else 1 - only / float(mean_S.mean())))
    return Measurement(result, replaced_S, subject_name(run.name, config.k))


BASELINES = ("zeroed", "mean_ablated")
"""Interventions that all runs of a layer share. The run's own follow."""

LOSSES = ("ce_original", "ce_zeroed", "ce_mean_ablated", "ce_replaced", "ce_frozen")
"""Fields of the losses under the first interventions, in the order of ``_measure_losses``."""


PLAIN_VALUES = ("kl", "agreement", "normalized_mse", "paper_error", "variance_explained", "l0", "routing_share")
"""Metrics that the result contains as plain values in addition to their intervals."""


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
        replaced[layer] = layer_outputs(sparse_layer, statistics)["replaced"]
        zeros[layer], means[layer] = zero_output, constant_output(statistics.output_O)
    losses = measure_losses(evaluator, [ORIGINAL, zeros, means, replaced])
    mean_S, replaced_S = loss_increases(losses, 2), loss_increases(losses, 3)
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


def _reconstruction_intervals(evaluator: Evaluator, statistics: LayerStatistics) -> dict[str, Interval]:
    """Reconstruction errors of the layer, variance explained and L0."""
    errors, bootstrap = statistics.errors, evaluator.bootstrap
    deviation_S = errors.squared_deviation(statistics.output_O, evaluator.ids_SL.shape[1])
    unexplained = bootstrap.ratio(np.array(errors.squared_error), deviation_S)
    return {
        "normalized_mse": bootstrap.mean(np.array(errors.normalized_mse)),
        "paper_error": bootstrap.mean(np.array(errors.paper_error)),
        "variance_explained": Interval(1 - unexplained.value, 1 - unexplained.high, 1 - unexplained.low),
        "l0": bootstrap.mean(np.array(errors.l0)),
    }


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


SUBJECT = "layer by layer: "
"""Prefix of the evaluation's key in the database."""


def layer_by_layer_subject(runs: Sequence[Run]) -> str:
    """Key of the evaluation in the database."""
    return SUBJECT + " + ".join(run.name for run in sort_by_layer(runs))


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
        interventions.append({**interventions[-1], run.config.layer: _layer_output(evaluator, run)})
    losses = measure_losses(evaluator, interventions)
    steps = tuple(
        AddedLayer(
            run=run.name,
            layer=run.config.layer,
            loss_increase=evaluator.bootstrap.mean(loss_increases(losses, count)),
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
    return Measurement(result, loss_increases(losses, len(ordered)), result.run)


def _layer_output(evaluator: Evaluator, run: Run) -> OutputFunction:
    sparse_layer = run.layer.to(evaluator.language_model.device_of(run.config.layer))

    def output(x_TI: Tensor, output_TO: Tensor) -> Tensor:
        replaced_TO: Tensor = sparse_layer(output_TO if sparse_layer.reads == "mlp-output" else x_TI).output_TO
        return replaced_TO

    return output


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
