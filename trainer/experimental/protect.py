"""Privacy fine-tuning (``mxd lab protect``): runs whose language model is uncertain on chosen passages.

The output scaling C and the gate of MxDs are trained towards near-uniform next-token predictions on the passages, while
the loss on a retain set stays within a limit. The centre of centred mixing follows the retain set, as in training.
Test-time privacy (arXiv 2509.11625, for image classifiers) asks for such predictions. The result, which does not hold,
is in ``docs/results/privacy.md``.

    minimise  theta KL(U || p)(passages) + (1 - theta) next-token loss(retain set)

The original runs are not changed, and nothing is written before everything has been measured.

Shapes: S texts or sequences, T tokens of the longest, L tokens of a sequence, P predictions, V vocabulary.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.errors import UserError
from mxd.trainer.experimental import ProtectConfig, ProtectedTrainConfig
from mxd.trainer.experimental.passages import EncodedTexts, Passage, drop_overlapping, encode, score_all, variations_of
from mxd.trainer.language_model.edited_mlp import EditedMlp, LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD, centre_weight
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, copy_tokenizer, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.storage.run_sets import check_compatible_runs
from mxd.trainer.utils.bootstrap import Bootstrap, Floats, Interval
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.devices import in_float64
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from mxd.trainer.utils.files import atomic_directory, atomic_write, finite

RESULT_FILE = "protection.json"
"""Measurements, in the folder of each new run. They contain no part of a passage."""
RESAMPLES = 1000
UNPROTECTED = "unprotected"
"""Kind of the variation that holds passages to be left alone."""
TOP_TOKENS = 5
MICROBATCH_TEXTS = 8
"""Texts per forward and backward pass, which bounds memory."""
GATE = "gate."
SCALINGS = "scaling_NO"

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of logits [P, V] and next tokens [P] that returns losses [P]."""


# ---------------------------------------------------------------- model and losses


def next_token_loss(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    """Next-token loss in nats, [P]."""
    return F.cross_entropy(logits_PV, next_P, reduction="none")


@dataclass(frozen=True)
class ReplacementModel:
    """A model in which layers replace MLPs."""

    language_model: LanguageModel
    layers: Mapping[int, MxD]
    """Layers by layer index."""
    read: Callable[[int, LayerPass], None] = lambda _index, _layer_pass: None
    """Called with every pass through a layer."""

    @classmethod
    def from_runs(cls, language_model: LanguageModel, runs: Sequence[Run]) -> Self:
        """Replace MLPs by copies of the runs' layers. Raises UserError if a run is not an MxD."""
        layers: dict[int, MxD] = {}
        for run in runs:
            if not isinstance(run.layer, MxD):
                raise UserError(
                    f"Run '{run.name}' is a {run.config.method}. Privacy fine-tuning trains C and the gate of MxDs; "
                    "name MxDs."
                )
            trained = copy.deepcopy(run.layer).to(language_model.device_of(run.config.layer)).eval()
            for name, parameter in trained.named_parameters():
                parameter.requires_grad_(name == SCALINGS or name.startswith(GATE))
            layers[run.config.layer] = trained
        return cls(language_model, layers)

    def copy(self) -> ReplacementModel:
        """Copy with separate layers."""
        return ReplacementModel(self.language_model, copy.deepcopy(dict(self.layers)))

    def trainable_parameters(self) -> list[nn.Parameter]:
        """C and the gate of every layer, in a fixed order."""
        return [
            parameter for layer in self.layers.values() for parameter in layer.parameters() if parameter.requires_grad
        ]

    def take_step(self, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor]) -> None:
        """Change the trainable parameters by their gradients."""
        for parameter, gradient in zip(self.trainable_parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    def _changing(self) -> list[Tensor]:
        """The trainable parameters, then the centres of the mixing, which are the only buffers."""
        return [*self.trainable_parameters(), *(centre for layer in self.layers.values() for centre in layer.buffers())]

    def load(self, values: Sequence[Tensor]) -> None:
        """Set the trainable parameters and the centres to those of a ``snapshot``."""
        with torch.no_grad():
            for tensor, value in zip(self._changing(), values, strict=True):
                tensor.copy_(value)

    def snapshot(self) -> list[Tensor]:
        """Copies of the trainable parameters, then of the centres."""
        return [tensor.detach().clone() for tensor in self._changing()]

    @contextmanager
    def following(self, step: int) -> Iterator[ReplacementModel]:
        """The same model; the centres follow the texts that it reads inside the context, as in step ``step`` of
        training."""
        mixings: dict[int, list[Tensor]] = {index: [] for index in self.layers}

        def keep(index: int, layer_pass: LayerPass) -> None:
            mixings[index].append(layer_pass.mixing_PM.detach())

        with ExitStack() as ends:
            for layer in self.layers.values():
                layer.average = SINGLE_PROCESS.average
                ends.callback(setattr, layer, "average", None)
            yield replace(self, read=keep)
        for index, layer in self.layers.items():
            layer.follow(torch.cat(mixings[index]), centre_weight(step))

    def predictions(self, texts: EncodedTexts) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits [P, V] and next tokens [P] of the scored predictions, some texts at a time."""
        mlps = {index: EditedMlp(layer, partial(self.read, index), "replace") for index, layer in self.layers.items()}
        for start in range(0, len(texts), MICROBATCH_TEXTS):
            part = texts.select(slice(start, start + MICROBATCH_TEXTS))
            ids_ST = part.ids_ST.to(self.language_model.device)
            is_scored_ST = part.is_scored_ST.to(ids_ST.device)
            with self.language_model.replace_mlps(mlps):
                residual_STW = self.language_model.residual(ids_ST)
            logits_PV = self.language_model.unembed(residual_STW[is_scored_ST.to(residual_STW.device)])
            yield logits_PV, ids_ST.roll(-1, 1)[is_scored_ST].to(logits_PV.device)

    def gradient(self, texts: EncodedTexts, loss: Loss, weight: float) -> tuple[float, list[Tensor]]:
        """Mean loss over the scored predictions, and the gradients of ``weight`` times it."""
        parameters, total = self.trainable_parameters(), texts.predictions
        value, gradients = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
        with torch.enable_grad():
            for logits_PV, next_P in self.predictions(texts):
                share = loss(logits_PV, next_P).sum() / total
                shares = torch.autograd.grad(weight * share, parameters)
                for total_gradient, gradient in zip(gradients, shares, strict=True):
                    total_gradient += gradient
                value += share.item()
        return value, gradients


def kl_from_uniform(logits_PV: Tensor, _next_P: Tensor | None = None) -> Tensor:
    """KL(U || p) in nats, [P]: log-sum-exp of the logits minus their mean and ln V, hence convex in the logits."""
    return logits_PV.logsumexp(-1) - logits_PV.mean(-1) - math.log(logits_PV.shape[-1])


def combine_gradients(first: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    """Add two gradients with conflicts removed (PCGrad, arXiv 2001.06782).

    If their inner product is negative, each is projected onto the plane orthogonal to the other. Then, to first order,
    neither loss rises.
    """

    def product(one: Sequence[Tensor], two: Sequence[Tensor]) -> float:
        return sum(float(in_float64(a).flatten() @ in_float64(b).flatten()) for a, b in zip(one, two, strict=True))

    inner = product(first, other)
    if inner >= 0:
        return [a + b for a, b in zip(first, other, strict=True)]
    of_other, of_first = inner / product(other, other), inner / product(first, first)
    return [a - of_other * b + b - of_first * a for a, b in zip(first, other, strict=True)]


# ---------------------------------------------------------------- results


@dataclass(frozen=True)
class Confidence:
    """Mean confidence over predictions. Uniform predictions have distance 0 and entropy 1."""

    predictions: int
    """Number of predictions."""
    confidence_distance: float
    """Largest probability minus 1/V, at least 0."""
    entropy: float
    """Entropy divided by ln V."""
    top_five: float
    """Summed probability of the five most probable tokens."""
    true_token: float
    """Probability of the actual next token."""


@dataclass(frozen=True)
class ConfidenceComparison:
    """Confidence on the same texts with the original runs and with the new runs."""

    before: Confidence
    after: Confidence


@dataclass(frozen=True)
class EvalPoint:
    """Measurements at a step, by which the best step is selected."""

    step: int
    protected: Confidence
    loss_increase: float
    """Loss increase on the validation part over the original runs, in nats per token."""


@dataclass(frozen=True)
class Relearning:
    """Confidence on the passages that the attacker does not have."""

    steps: int
    passages: int
    """Number of measured passages. The attacker fine-tunes on the others."""
    original: Confidence
    """Original runs, no attack."""
    protected: Confidence
    """Protected runs, no attack."""
    attacked: Confidence
    """Protected runs after the attack."""
    original_attacked: Confidence
    """Original runs after the same attack: the baseline for what the attacker's half reveals."""


@dataclass(frozen=True)
class RetainLoss:
    """Loss on the test part of the retain set, in nats per token."""

    tokens: int
    left_out: int
    """Number of dropped sequences, which overlap with a passage."""
    original: float
    """Loss of the original model."""
    before: float
    """Loss with the original runs."""
    after: float
    """Loss with the new runs."""
    loss_increase: Interval
    """Paired difference of after and before."""
    confidence: ConfidenceComparison


@dataclass(frozen=True)
class PrivacyResult:
    """Measurements of runs that were fine-tuned jointly for privacy."""

    runs: tuple[str, ...]
    """Names of the new runs."""
    parents: tuple[str, ...]
    theta: float
    learning_rate: float
    vocabulary: int
    passages: int
    steps: int
    """Number of steps taken."""
    best_step: int
    """Step whose weights are saved."""
    eval_points: tuple[EvalPoint, ...]
    protected: ConfidenceComparison
    variations: dict[str, ConfidenceComparison]
    """Confidence on variations of the passages, by kind; see ``variations_of``."""
    retained: RetainLoss
    relearning: Relearning | None


# ---------------------------------------------------------------- measurements


@torch.no_grad()
def measure_confidence(model: ReplacementModel, texts: EncodedTexts) -> Confidence:
    """Mean confidence over the scored predictions of some texts."""
    rows = []
    for logits_PV, next_P in model.predictions(texts):
        p_PV, vocabulary = logits_PV.softmax(-1), logits_PV.shape[-1]
        top_PK = p_PV.topk(min(TOP_TOKENS, vocabulary), dim=1).values
        distance_P = (top_PK[:, 0] - 1 / vocabulary).clamp_min(0)
        entropy_P = torch.special.entr(p_PV).sum(-1) / math.log(vocabulary)
        true_P = p_PV.gather(1, next_P.unsqueeze(1)).squeeze(1)
        rows.append(torch.stack([distance_P, entropy_P, top_PK.sum(1), true_P], dim=1))
    return Confidence(texts.predictions, *torch.cat(rows).cpu().double().mean(0).tolist())


@torch.no_grad()
def text_losses(model: ReplacementModel, texts: EncodedTexts) -> Floats:
    """Mean next-token loss of each text in nats, [S]. All texts must have the same number of predictions."""
    losses = torch.cat([next_token_loss(*part) for part in model.predictions(texts)])
    return np.asarray(losses.cpu().double().view(len(texts), -1).mean(1).numpy())


# ---------------------------------------------------------------- optimisation


@dataclass(frozen=True)
class PrivacyData:
    """The passages, and three disjoint parts of the retain set, each [S, L] token ids."""

    passages: EncodedTexts
    train_SL: Tensor
    """Sequences whose loss is part of the objective."""
    validation_SL: Tensor
    """Sequences for selecting the best step."""
    test_SL: Tensor
    """Sequences for the final measurements."""

    @classmethod
    def split(cls, passages: EncodedTexts, ids_SL: Tensor) -> PrivacyData:
        """Use half of the retain set for training, an eighth for validation and the rest for testing. Raises UserError
        if the retain set is too small."""
        half, eighth = len(ids_SL) // 2, len(ids_SL) // 8
        if not eighth:
            raise UserError(
                f"The retain set has {len(ids_SL)} sequences without a part of a passage, but at least 8 are needed. "
                "Give more text, or a larger --tokens."
            )
        train_SL, validation_SL, test_SL = ids_SL.split([half, eighth, len(ids_SL) - half - eighth])
        return cls(passages, train_SL, validation_SL, test_SL)

    def retain_batch(self, tokens: int, step: int) -> EncodedTexts:
        """About ``tokens`` tokens of the training part, in cycles over the steps."""
        count = max(1, tokens // self.train_SL.shape[1])
        indices = torch.arange(step * count, (step + 1) * count) % len(self.train_SL)
        return score_all(self.train_SL[indices.unique()])


def optimise(
    model: ReplacementModel, data: PrivacyData, config: ProtectConfig, callbacks: Callbacks = NO_CALLBACKS
) -> tuple[EvalPoint, tuple[EvalPoint, ...]]:
    """Train C and the gates of a model, and load the best step. Return its measurements, and those of all checks.
    Raises UserError if a loss is NaN or infinite, or no step is better than the original runs."""
    validation = score_all(data.validation_SL)
    optimizer = torch.optim.Adam(model.trainable_parameters(), lr=config.learning_rate)
    initial_loss = float(text_losses(model, validation).mean())
    points = [EvalPoint(0, measure_confidence(model, data.passages), 0.0)]
    best, weights = points[0], model.snapshot()
    for step in range(1, config.steps + 1):
        callbacks.check_cancelled("Cancelled; nothing was written.")
        passage_loss, passage_gradients = model.gradient(data.passages, kl_from_uniform, config.theta)
        with model.following(step - 1) as followed:
            batch = data.retain_batch(config.batch_tokens, step - 1)
            retain_loss, retain_gradients = followed.gradient(batch, next_token_loss, 1 - config.theta)
        if not (math.isfinite(passage_loss) and math.isfinite(retain_loss)):
            raise UserError(f"The loss at step {step} is not finite. Lower --learning-rate.")
        model.take_step(optimizer, combine_gradients(passage_gradients, retain_gradients))
        if step % config.check_every == 0 or step == config.steps:
            loss_increase = float(text_losses(model, validation).mean()) - initial_loss
            points.append(EvalPoint(step, measure_confidence(model, data.passages), loss_increase))
            is_lower = points[-1].protected.confidence_distance < best.protected.confidence_distance
            if is_lower and loss_increase <= config.max_added_loss:
                best, weights = points[-1], model.snapshot()
        distance, increase = points[-1].protected.confidence_distance, points[-1].loss_increase
        note = f"confidence distance {distance:.3f}, {increase:+.3f} nats elsewhere"
        callbacks.on_progress(step, config.steps, note)
    callbacks.check_cancelled("Cancelled; nothing was written.")
    if best.step == 0:
        raise UserError(
            f"No step reduced the confidence on the passages within a loss increase of {config.max_added_loss:g} nats "
            f"elsewhere. The last step has a confidence distance of {distance:.3f} and {increase:+.3f} nats. Raise "
            "--max-added-loss, or lower --theta or --learning-rate."
        )
    model.load(weights)
    return best, tuple(points)


def relearn(
    original: ReplacementModel, protected: ReplacementModel, passages: EncodedTexts, config: ProtectConfig
) -> Relearning | None:
    """Fine-tune C and the gates on every other passage, as an attacker with the weights could, at a fixed centre. None
    with fewer than two passages or with ``attack_steps`` 0."""
    known, unknown = passages.select(slice(0, None, 2)), passages.select(slice(1, None, 2))
    if not len(unknown) or not config.attack_steps:
        return None

    def attacked(model: ReplacementModel) -> ReplacementModel:
        model = model.copy()
        optimizer = torch.optim.Adam(model.trainable_parameters(), lr=config.learning_rate)
        for _ in range(config.attack_steps):
            model.take_step(optimizer, model.gradient(known, next_token_loss, 1.0)[1])
        return model

    models = (original, protected, attacked(protected), attacked(original))
    return Relearning(config.attack_steps, len(unknown), *(measure_confidence(model, unknown) for model in models))


# ---------------------------------------------------------------- fine-tuning


@dataclass(frozen=True)
class ProtectionOutcome:
    """New weights and their measurements."""

    model: ReplacementModel
    result: PrivacyResult


def protect(
    language_model: LanguageModel,
    runs: Sequence[Run],
    names: Sequence[str],
    passages: Sequence[Passage],
    retain_SL: Tensor,
    config: ProtectConfig,
    unprotected: Sequence[Passage] = (),
    callbacks: Callbacks = NO_CALLBACKS,
) -> ProtectionOutcome:
    """Fine-tune copies of some runs on some passages, and measure those of the best step.

    Raises:
        CancelledError: the task was cancelled; nothing was written.
        UserError: the runs, the passages or the retain set cannot be used, no step is better than the original runs, or
            a loss is NaN or infinite.
    """
    check_compatible_runs(runs)
    original = ReplacementModel.from_runs(language_model, runs)
    model = original.copy()
    encoded = partial(
        encode, language_model, skip_tokens=config.skip_tokens, start_token=runs[0].config.text.start_token
    )
    texts = encoded([passage.text for passage in passages])
    disjoint_SL = drop_overlapping(retain_SL, texts)
    data = PrivacyData.split(texts, disjoint_SL)
    best, points = optimise(model, data, config, callbacks)

    def compare(texts: EncodedTexts) -> ConfidenceComparison:
        return ConfidenceComparison(measure_confidence(original, texts), measure_confidence(model, texts))

    variations, tokenizer = {}, language_model.tokenizer
    for kind, given in (variations_of(passages) | {UNPROTECTED: [passage.text for passage in unprotected]}).items():
        lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in given]
        long_enough = [text for text, length in zip(given, lengths, strict=True) if length > config.skip_tokens]
        if long_enough:
            variations[kind] = compare(encoded(long_enough))
    test = score_all(data.test_SL)
    before_S, after_S = text_losses(original, test), text_losses(model, test)
    result = PrivacyResult(
        runs=tuple(names),
        parents=tuple(run.name for run in runs),
        theta=config.theta,
        learning_rate=config.learning_rate,
        vocabulary=next(model.predictions(texts.select(slice(0, 1))))[0].shape[-1],
        passages=len(texts),
        steps=config.steps,
        best_step=best.step,
        eval_points=points,
        protected=compare(texts),
        variations=variations,
        retained=RetainLoss(
            tokens=data.test_SL.numel(),
            left_out=len(retain_SL) - len(disjoint_SL),
            original=float(text_losses(ReplacementModel(language_model, {}), test).mean()),
            before=float(before_S.mean()),
            after=float(after_S.mean()),
            loss_increase=Bootstrap(len(after_S), RESAMPLES, config.seed).mean(after_S - before_S),
            confidence=compare(test),
        ),
        relearning=relearn(original, model, texts, config),
    )
    return ProtectionOutcome(model, result)


def check_new_runs(names: Sequence[str], data: Path, database: Engine) -> None:
    """Check that no run has one of these names. Raises UserError if a run exists."""
    with Session(database) as session:
        known = set(session.scalars(select(RunRecord.name).where(RunRecord.name.in_(names))))
    for name in names:
        if name in known or (runs_folder(data) / name).exists():
            raise UserError(
                f"Run '{name}' already exists. Choose another --name, or remove it with 'mxd remove {name}'."
            )


def write_outcome(
    runs: Sequence[Run], outcome: ProtectionOutcome, config: ProtectConfig, data: Path, database: Engine
) -> dict[str, Any]:
    """Write the new runs, each atomically and with the measurements. Returns the measurements as plain data. ``runs``
    are the parents. Raises UserError if a new run exists by now, or the disk is full."""
    names = outcome.result.runs
    check_new_runs(names, data, database)
    result: dict[str, Any] = finite(asdict(outcome.result))
    for run, name in zip(runs, names, strict=True):
        others = tuple(other.name for other in runs if other is not run)
        changed = {
            "name": name,
            "language_model": run.language_model_source,
            "num_experts": run.layer_config.num_experts,
            "parents": (run.name, *others),
            "privacy": config.model_dump(),
        }
        settings = ProtectedTrainConfig.model_validate(run.config.model_dump() | changed)
        target = runs_folder(data) / name
        with atomic_directory(target) as folder:
            outcome.model.layers[run.config.layer].cpu().save(folder)
            copy_tokenizer(run.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
            atomic_write(folder / RESULT_FILE, json.dumps(result, indent=1) + "\n")
            atomic_write(folder / RUN_FILE, settings.model_dump_json(indent=1) + "\n")
        register_run(Run(target, settings), database)
    return result
