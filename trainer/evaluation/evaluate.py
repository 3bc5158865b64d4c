"""Measuring a run on held-out text: what it adds to the loss, and whether its experts do anything.

Shapes: S sequences, L tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.config import EvaluateConfig
from trainer.errors import UserError
from trainer.evaluation.arms import ORIGINAL, Arm, LayerArms, Losses, arm_of, constant_in, measure, paired, zeroed_in
from trainer.evaluation.continuations import agreement
from trainer.evaluation.health import health_of, shared_experts
from trainer.evaluation.intervals import Bootstrap, Floats, Interval
from trainer.evaluation.result import Added, Evaluation, SharedExpert, Together
from trainer.evaluation.statistics import Statistics, gather
from trainer.evaluation.verdicts import verdicts
from trainer.in_place import refuse_overlapping
from trainer.language_model import LanguageModel
from trainer.layers.sparse import SparseLayer
from trainer.progress import Progress, ShouldStop
from trainer.run import Run
from trainer.text import sequences


class Stopped(UserError):
    """Somebody asked to stop; nothing of what was under way is kept."""


@dataclass(frozen=True)
class Measured:
    """An evaluation, and the loss that each sequence gains, [S]."""

    result: Evaluation | Together | Added
    added_S: Floats
    subject: str
    """What it is of, as the store has it."""


@dataclass(frozen=True)
class Session:
    """What every measurement on one text shares."""

    config: EvaluateConfig
    language_model: LanguageModel
    ids_SL: Tensor
    bootstrap: Bootstrap
    progress: Progress
    should_stop: ShouldStop

    @classmethod
    def open(
        cls, config: EvaluateConfig, language_model: LanguageModel, progress: Progress, should_stop: ShouldStop
    ) -> Session:
        """Read the text.

        Raises:
            UserError: it is too short, or cannot be read.
        """
        stream = sequences(config.text, language_model.tokenizer, config.tokens, config.seed, "as-is")
        ids_SL = torch.from_numpy(np.stack(list(stream))).long()
        bootstrap = Bootstrap(len(ids_SL), config.resamples, config.seed)
        return cls(config, language_model, ids_SL, bootstrap, progress, should_stop)

    def losses(self, arms: Sequence[Arm]) -> Losses:
        """Of arms of which the first is the original.

        Raises:
            Stopped: somebody asked for it.
        """
        found = measure(self.language_model, arms, self.ids_SL, self.progress, self.should_stop)
        if found is None:
            raise Stopped("Evaluating was stopped; what was finished is in the store. Run the same command to go on.")
        return found


def evaluate(session: Session, run: Run, seen_text: bool) -> Measured:
    """One run in place of its layer's MLP."""
    layer = run.at_k(session.config.k).to(session.language_model.device_of(run.config.layer))
    found = gather(session.language_model, run.config.layers, layer, session.ids_SL, session.progress)
    shared = shared_experts(found, session.config.always_on)
    own = LayerArms(layer, found, shared.experts)
    losses = _losses(session, run, found, own)
    zero_S, mean_S, added_S, frozen_S, without_S, only_S = (paired(losses, arm) for arm in range(1, 7))
    intervals = _intervals(session, found) | {
        "kl": session.bootstrap.mean(losses.kl[3]),
        "agreement": session.bootstrap.mean(losses.agreement[3]),
        "routing_share": session.bootstrap.ratio(frozen_S, mean_S),
        "ce_frozen": session.bootstrap.mean(losses.ce[4]),
    }
    health = health_of(layer, found, session.config.seed)
    recovered, ce = session.bootstrap.ratio(mean_S - added_S, mean_S), losses.ce.mean(axis=1)
    result = Evaluation(
        run=run.name,
        method=run.config.method,
        language_model=run.config.language_model,
        layer=run.config.layer,
        layers=tuple(run.config.layers),
        num_experts=layer.config.num_experts,
        k=layer.config.k,
        fitted_k=run.layer.config.k,
        smallest_k=layer.config.smallest_k,
        parameters=layer.num_parameters,
        seed=run.config.seed,
        fitted_tokens=run.config.tokens,
        text=session.config.text.text,
        tokens=session.ids_SL.numel(),
        sequences=len(session.ids_SL),
        seen_text=seen_text,
        ce_original=float(ce[0]),
        ce_zeroed=float(ce[1]),
        ce_mean_ablated=float(ce[2]),
        ce_replaced=float(ce[3]),
        ce_frozen=float(ce[4]),
        delta_ce=session.bootstrap.mean(added_S),
        loss_recovered_zero=session.bootstrap.ratio(zero_S - added_S, zero_S),
        loss_recovered_mean=recovered,
        normalised_mse_of_layers=_of_layers(session, found),
        dead_share=health.load.dead_share,
        intervals=intervals,
        continuations=_continuations(session, {run.config.layer: layer}),
        shared_expert=SharedExpert(
            **asdict(shared), delta_ce_without=float(without_S.mean()), delta_ce_only=float(only_S.mean())
        ),
        health=health,
        verdicts=verdicts(
            run.config.method,
            health,
            shared,
            recovered,
            intervals["routing_share"],
            only=float(1 - only_S.mean() / mean_S.mean()),
        ),
        **{name: intervals[name].value for name in VALUES},
    )
    return Measured(result, added_S, subject_at(run.name, session.config.k))


def _losses(session: Session, run: Run, found: Statistics, own: LayerArms) -> Losses:
    """Original, MLPs zeroed, at their means; the run in place, frozen, without its shared experts, with them alone."""
    answers = (own.replaced, own.frozen, own.without_shared, own.only_shared)
    baselines = [ORIGINAL, zeroed_in(run), constant_in(run, found.output_O)]
    return session.losses([*baselines, *(arm_of(run, answer) for answer in answers)])


def subject_at(run: str, k: int | None) -> str:
    """What an evaluation is of, in the store: a run, or a run with fewer experts of each token."""
    return run if k is None else f"{run} at K {k}"


VALUES = (
    "kl",
    "agreement",
    "normalised_mse",
    "paper_error",
    "variance_explained",
    "l0",
    "routing_share",
)
"""Measures that stand in the result as plain values, beside their intervals."""


def evaluate_together(session: Session, runs: Sequence[Run], single: Sequence[float]) -> Measured:
    """Several runs in place at once; ``single`` is what each adds alone.

    Raises:
        UserError: two are of one layer.
    """
    refuse_overlapping(runs)
    replaced, zeros, means = dict(ORIGINAL), dict(ORIGINAL), dict(ORIGINAL)
    for run in runs:
        layer = run.layer.to(session.language_model.device_of(run.config.layer))
        found = gather(session.language_model, run.config.layers, layer, session.ids_SL, session.progress)
        replaced |= arm_of(run, LayerArms(layer, found, ()).replaced)
        zeros |= zeroed_in(run)
        means |= constant_in(run, found.output_O)
    losses = session.losses([ORIGINAL, zeros, means, replaced])
    mean_S, added_S = paired(losses, 2), paired(losses, 3)
    ce = losses.ce.mean(axis=1)
    result = Together(
        run=" + ".join(run.name for run in runs),
        runs=tuple(run.name for run in runs),
        text=session.config.text.text,
        tokens=session.ids_SL.numel(),
        ce_original=float(ce[0]),
        ce_zeroed=float(ce[1]),
        ce_mean_ablated=float(ce[2]),
        ce_replaced=float(ce[3]),
        delta_ce=session.bootstrap.mean(added_S),
        sum_of_single=sum(single),
        loss_recovered_mean=session.bootstrap.ratio(mean_S - added_S, mean_S),
        kl=float(losses.kl[3].mean()),
        agreement=float(losses.agreement[3].mean()),
    )
    return Measured(result, added_S, result.run)


def _of_layers(session: Session, found: Statistics) -> tuple[Interval, ...]:
    of_layers_SJ = np.array(found.errors.of_layers)
    return tuple(session.bootstrap.mean(of_layer_S) for of_layer_S in of_layers_SJ.T)


def _intervals(session: Session, found: Statistics) -> dict[str, Interval]:
    """Of how close the layer's output is."""
    errors, bootstrap = found.errors, session.bootstrap
    deviation_S = errors.squared_deviation(found.output_O, session.ids_SL.shape[1])
    unexplained = bootstrap.ratio(np.array(errors.squared_error), deviation_S)
    return {
        "normalised_mse": bootstrap.mean(np.array(errors.normalised_mse)),
        "paper_error": bootstrap.mean(np.array(errors.paper_error)),
        "variance_explained": Interval(1 - unexplained.value, 1 - unexplained.high, 1 - unexplained.low),
        "l0": bootstrap.mean(np.array(errors.l0)),
    }


def _continuations(session: Session, layers: Mapping[int, SparseLayer]) -> dict[str, float]:
    found = agreement(session.language_model, layers, session.ids_SL, session.config.prompts)
    return {str(length): share for length, share in found.items()}
