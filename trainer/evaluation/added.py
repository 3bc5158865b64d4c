"""What is lost as layers are added one by one, from the first of the language model to the last.

Shapes: S sequences, T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from trainer.evaluation.arms import ORIGINAL, Answer, Arm, arm_of, paired
from trainer.evaluation.evaluate import Measured, Session
from trainer.evaluation.result import Added, AddedLayer
from trainer.in_place import refuse_overlapping
from trainer.layers.sparse import SparseLayer
from trainer.run import Run

SUBJECT = "one by one: "
"""Before the runs' names, as the measurement is called in the store."""


def subject_of(runs: Sequence[Run]) -> str:
    """What the measurement is called in the store."""
    return SUBJECT + " + ".join(run.name for run in in_order(runs))


def in_order(runs: Sequence[Run]) -> list[Run]:
    """As they are added: by layer.

    Raises:
        UserError: two are of one layer.
    """
    refuse_overlapping(runs)
    return sorted(runs, key=lambda run: run.config.layer)


def evaluate_added(session: Session, runs: Sequence[Run], single: Sequence[float]) -> Measured:
    """Runs put in place one by one, all stages side by side in one pass; ``single`` is what each adds alone.

    Raises:
        UserError: two are of one layer.
    """
    alone = {run.name: loss for run, loss in zip(runs, single, strict=True)}
    ordered = in_order(runs)
    arms = [_together(session, ordered[: count + 1]) for count in range(len(ordered))]
    losses = session.losses([ORIGINAL, *arms])
    steps = tuple(
        AddedLayer(
            run=run.name,
            layer=run.config.layer,
            delta_ce=session.bootstrap.mean(paired(losses, arm)),
            kl=float(losses.kl[arm].mean()),
            agreement=float(losses.agreement[arm].mean()),
            sum_of_single=sum(alone[before.name] for before in ordered[:arm]),
        )
        for arm, run in enumerate(ordered, start=1)
    )
    result = Added(
        run=subject_of(runs),
        runs=tuple(run.name for run in ordered),
        fine_tuned=all(run.config.began_as for run in runs),
        text=session.config.text.text,
        tokens=session.ids_SL.numel(),
        ce_original=float(losses.ce[0].mean()),
        steps=steps,
    )
    return Measured(result, paired(losses, len(ordered)), result.run)


def _together(session: Session, runs: Sequence[Run]) -> Arm:
    return {layer: answer for run in runs for layer, answer in arm_of(run, _answer(session, run)).items()}


def _answer(session: Session, run: Run) -> Answer:
    layer: SparseLayer = run.layer.to(session.language_model.device_of(run.config.layer))

    def answer(x_TI: Tensor, output_TO: Tensor) -> Tensor:
        replaced_TO: Tensor = layer(output_TO if layer.reads == "mlp-output" else x_TI).output_TO
        return replaced_TO

    return answer
