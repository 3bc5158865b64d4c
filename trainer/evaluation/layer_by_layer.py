"""Loss increase as the layers of several runs are replaced one after another, from the first layer to the last.

Shapes: T tokens of a sequence, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mxd.trainer.evaluation.evaluate import Evaluator, Measurement
from mxd.trainer.evaluation.interventions import ORIGINAL, Intervention, OutputFunction, intervene, loss_increases
from mxd.trainer.evaluation.results import AddedLayer, LayerByLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_disjoint_layers

SUBJECT = "layer by layer: "
"""Prefix of the evaluation's key in the database."""


def layer_by_layer_subject(runs: Sequence[Run]) -> str:
    """Key of the evaluation in the database."""
    return SUBJECT + " + ".join(run.name for run in sort_by_layer(runs))


def sort_by_layer(runs: Sequence[Run]) -> list[Run]:
    """Sort runs by layer.

    Raises:
        UserError: two runs are of the same layer.
    """
    check_disjoint_layers(runs)
    return sorted(runs, key=lambda run: run.config.layer)


def evaluate_layer_by_layer(
    evaluator: Evaluator, runs: Sequence[Run], individual_losses: Sequence[float]
) -> Measurement:
    """Evaluate the first run, then the first two, and so on, all in one pass over the text.

    Args:
        individual_losses: loss increase of each run on its own.

    Raises:
        UserError: two runs are of the same layer.
        CancelledError: the task was cancelled.
    """
    individual = {run.name: loss for run, loss in zip(runs, individual_losses, strict=True)}
    ordered = sort_by_layer(runs)
    interventions = [_replace_all(evaluator, ordered[: count + 1]) for count in range(len(ordered))]
    losses = evaluator.losses([ORIGINAL, *interventions])
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


def _replace_all(evaluator: Evaluator, runs: Sequence[Run]) -> Intervention:
    return {layer: output for run in runs for layer, output in intervene(run, _layer_output(evaluator, run)).items()}


def _layer_output(evaluator: Evaluator, run: Run) -> OutputFunction:
    sparse_layer = run.layer.to(evaluator.language_model.device_of(run.config.layer))

    def output(x_TI: Tensor, output_TO: Tensor) -> Tensor:
        replaced_TO: Tensor = sparse_layer(output_TO if sparse_layer.reads == "mlp-output" else x_TI).output_TO
        return replaced_TO

    return output
