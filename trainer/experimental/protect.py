"""Privacy fine-tuning (``mxd lab protect``): runs whose language model is uncertain on chosen passages.

The output scaling C and the gate of MxDs are trained towards near-uniform next-token predictions on the passages, while
the loss on a retain set stays within a limit. The centre of centred mixing follows the retain set, as in training.
Test-time privacy (arXiv 2509.11625, for image classifiers) asks for such predictions. The result, which does not hold,
is in ``docs/results/privacy.md``.

    minimise  theta KL(U || p)(passages) + (1 - theta) next-token loss(retain set)

The original runs are not changed, and nothing is written before everything has been measured.

Shapes: S texts or sequences, T tokens of the longest, L tokens of a sequence, P predictions, V vocabulary.
"""

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.data.readers import file_errors
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.experimental import ProtectConfig, ProtectedTrainConfig
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids, start_token_id
from mxd.trainer.layers.mxd import MxD, centre_weight
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, copy_tokenizer, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.storage.run_sets import check_compatible_runs
from mxd.trainer.utils.bootstrap import Bootstrap, Floats
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.devices import in_float64
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from mxd.trainer.utils.files import atomic_directory, atomic_write, finite

# ---------------------------------------------------------------- passages

MAX_PASSAGES = 5000
BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
SKIPPED_PART = 3
"""The variation ``later beginning`` skips one of this many parts of a passage's words."""
OVERLAP_TOKENS = 8
"""Number of consecutive tokens that a sequence shares with a passage if it overlaps."""

NotBlank = Annotated[str, Field(pattern=r"\S")]


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Passage:
    """A text on which predictions should become uncertain, and paraphrases of it."""

    text: NotBlank
    paraphrases: tuple[NotBlank, ...] = ()


@dataclass(frozen=True)
class EncodedTexts:
    """Token ids of texts, with a start token, padded to equal length."""

    ids_ST: Tensor
    """Token ids, padded with the start token on the right, where attention does not see it."""
    is_scored_ST: Tensor
    """Mask of positions whose next-token prediction is scored."""

    def __len__(self) -> int:
        return len(self.ids_ST)

    @property
    def predictions(self) -> int:
        return int(self.is_scored_ST.sum())

    def select(self, rows: slice) -> Self:
        return type(self)(self.ids_ST[rows], self.is_scored_ST[rows])


def read_passages(path: Path) -> list[Passage]:
    """Read passages: paragraphs of a .txt file, or a .jsonl file of objects with ``text`` and optional ``paraphrases``.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file is of another kind, damaged or empty, or has too many passages.
    """
    path = path.expanduser()
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}. Give --passages a .txt or .jsonl file.")
    if path.suffix not in (".txt", ".jsonl"):
        raise UserError(
            f"{path} is neither .txt nor .jsonl. Give a .txt file with blank lines between passages, or a .jsonl file."
        )
    try:
        with file_errors(path), path.open(encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    passages = []
    if path.suffix == ".txt":
        passages = [Passage(part.strip()) for part in BLANK_LINES.split(text) if part.strip()]
    for number, line in enumerate(text.split("\n") if path.suffix == ".jsonl" else (), start=1):
        try:
            passages += [TypeAdapter(Passage).validate_json(line)] if line.strip() else []
        except ValidationError as error:
            raise UserError(
                f'Line {number} of {path} is not a passage. Write {{"text": "…"}}, optionally with "paraphrases": '
                '["…"].'
            ) from error
    unique = list(dict.fromkeys(passages))
    if not unique:
        raise UserError(f"{path} holds no passages.")
    if len(unique) > MAX_PASSAGES:
        raise UserError(f"{path} holds {len(unique):,} passages. At most {MAX_PASSAGES:,} can be protected together.")
    return unique


def encode(
    language_model: LanguageModel, texts: Sequence[str], skip_tokens: int, start_token: str | None = None
) -> EncodedTexts:
    """Tokenise texts. All predictions count except the first ``skip_tokens`` and the one after the last token.

    ``start_token`` is the one of the runs; by default, that of the language model.

    Raises:
        TooLongError: a text exceeds the context length.
        UserError: a text is too short to have scored predictions.
    """
    rows = [prompt_ids(language_model, text, start_token=start_token) for text in texts]
    for row, text in zip(rows, texts, strict=True):
        if len(row) < skip_tokens + 2:
            raise UserError(
                f"The passage {text[:40]!r} has {len(row) - 1} tokens, of which the first {skip_tokens} are not "
                "protected. Make it longer, or lower --skip-tokens."
            )
    longest, padding = max(map(len, rows)), start_token_id(language_model.tokenizer)
    ids_ST = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
    position_T, lengths_S = torch.arange(longest), torch.tensor([len(row) for row in rows])
    return EncodedTexts(ids_ST, (position_T >= skip_tokens) & (position_T < lengths_S.unsqueeze(1) - 1))


def variations_of(passages: Sequence[Passage]) -> dict[str, list[str]]:
    """Variations of the passages by kind: the given paraphrases and two automatic ones.

    ``later beginning`` drops the first third of the words. ``swapped case`` swaps the case of every letter.
    """
    given = [text for passage in passages for text in passage.paraphrases]
    words = [passage.text.split(" ") for passage in passages]
    shortened = [" ".join(part[max(1, len(part) // SKIPPED_PART) :]) for part in words]
    automatic = {
        "later beginning": [text for text in shortened if text],
        "swapped case": [text for passage in passages if (text := passage.text.swapcase()) != passage.text],
    }
    return {kind: texts for kind, texts in ({"given": given} | automatic).items() if texts}


def drop_overlapping(ids_SL: Tensor, passages: EncodedTexts) -> Tensor:
    """Drop the sequences that share tokens with a passage, because the two losses would conflict on them."""
    lengths = passages.is_scored_ST.long() * torch.arange(1, passages.ids_ST.shape[1] + 1)

    def parts(ids: list[int]) -> Iterator[tuple[int, ...]]:
        return (tuple(ids[start : start + OVERLAP_TOKENS]) for start in range(len(ids) - OVERLAP_TOKENS + 1))

    rows = zip(passages.ids_ST.tolist(), lengths.amax(1).tolist(), strict=True)
    protected = {part for ids, last in rows for part in parts(ids[1 : last + 1])}
    disjoint = [index for index, ids in enumerate(ids_SL.tolist()) if protected.isdisjoint(parts(ids))]
    return ids_SL[disjoint]


def score_all(ids_SL: Tensor) -> EncodedTexts:
    """Sequences of equal length whose predictions are all scored."""
    is_scored_SL = torch.ones_like(ids_SL, dtype=torch.bool)
    is_scored_SL[:, -1] = False
    return EncodedTexts(ids_SL, is_scored_SL)


# ---------------------------------------------------------------- model and losses

MICROBATCH_TEXTS = 8
"""Texts per forward and backward pass, which bounds memory."""
GATE, SCALINGS = "gate.", "scaling_NO"
Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of logits [P, V] and next tokens [P] that returns losses [P]."""


def next_token_loss(logits_PV: Tensor, next_P: Tensor) -> Tensor:
    return F.cross_entropy(logits_PV, next_P, reduction="none")


@dataclass(frozen=True)
class ReplacementModel:
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

    def copy(self) -> Self:
        return type(self)(self.language_model, copy.deepcopy(dict(self.layers)))

    def trainable_parameters(self) -> list[nn.Parameter]:
        """C and the gate of every layer, in a fixed order."""
        parameters = (parameter for layer in self.layers.values() for parameter in layer.parameters())
        return [parameter for parameter in parameters if parameter.requires_grad]

    @contextmanager
    def following(self, step: int) -> Iterator[Self]:
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


# ---------------------------------------------------------------- measurements

TOP_TOKENS = 5
Confidence = dict[str, float]
"""Number of ``predictions``, and means over them: ``confidence_distance``, the largest probability minus 1/V, at least
0; ``entropy`` divided by ln V; ``top_five``, the summed probability of the five most probable tokens; ``true_token``,
the probability of the actual next token. Uniform predictions have distance 0 and entropy 1."""


@torch.no_grad()
def measure_confidence(model: ReplacementModel, texts: EncodedTexts) -> Confidence:
    rows = []
    for logits_PV, next_P in model.predictions(texts):
        p_PV, vocabulary = logits_PV.softmax(-1), logits_PV.shape[-1]
        top_PK = p_PV.topk(min(TOP_TOKENS, vocabulary), dim=1).values
        distance_P = (top_PK[:, 0] - 1 / vocabulary).clamp_min(0)
        entropy_P = torch.special.entr(p_PV).sum(-1) / math.log(vocabulary)
        true_P = p_PV.gather(1, next_P.unsqueeze(1)).squeeze(1)
        rows.append(torch.stack([distance_P, entropy_P, top_PK.sum(1), true_P], dim=1))
    names = ("confidence_distance", "entropy", "top_five", "true_token")
    means = torch.cat(rows).cpu().double().mean(0).tolist()
    return {"predictions": texts.predictions, **dict(zip(names, means, strict=True))}


@torch.no_grad()
def text_losses(model: ReplacementModel, texts: EncodedTexts) -> Floats:
    """Mean next-token loss of each text in nats, [S]. All texts must have the same number of predictions."""
    losses = torch.cat([next_token_loss(*part) for part in model.predictions(texts)])
    return np.asarray(losses.cpu().double().view(len(texts), -1).mean(1).numpy())


# ---------------------------------------------------------------- fine-tuning

RESULT_FILE = "protection.json"
"""Measurements, in the folder of each new run. They contain no part of a passage."""
RESAMPLES = 1000
Measured = dict[str, Any]
"""Measurements, as in ``RESULT_FILE``."""


def _take_step(model: ReplacementModel, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(model.trainable_parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def optimise(
    model: ReplacementModel,
    passages: EncodedTexts,
    train_SL: Tensor,
    validation: EncodedTexts,
    config: ProtectConfig,
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[ReplacementModel, Measured, list[Measured]]:
    """Train C and the gates of a model. Return a copy of it at the best step, and the measurements of this and of all
    checks: ``step``, confidence on the ``protected`` passages, and ``loss_increase`` on the validation texts over the
    original runs, in nats per token. Raises UserError if a loss is NaN or infinite, or no step is better than the
    original runs."""
    optimizer = torch.optim.Adam(model.trainable_parameters(), lr=config.learning_rate)
    initial_loss = float(text_losses(model, validation).mean())
    each = max(1, config.batch_tokens // train_SL.shape[1])
    best: Measured = {"step": 0, "protected": measure_confidence(model, passages), "loss_increase": 0.0}
    best_model, points = model, [best]
    for step in range(1, config.steps + 1):
        callbacks.check_cancelled("Cancelled; nothing was written.")
        passage_loss, passage_gradients = model.gradient(passages, kl_from_uniform, config.theta)
        with model.following(step - 1) as followed:
            chosen = torch.arange((step - 1) * each, step * each) % len(train_SL)  # in cycles over the steps
            batch = score_all(train_SL[chosen.unique()])
            retain_loss, retain_gradients = followed.gradient(batch, next_token_loss, 1 - config.theta)
        if not (math.isfinite(passage_loss) and math.isfinite(retain_loss)):
            raise UserError(f"The loss at step {step} is not finite. Lower --learning-rate.")
        _take_step(model, optimizer, combine_gradients(passage_gradients, retain_gradients))
        if step % config.check_every == 0 or step == config.steps:
            increase = float(text_losses(model, validation).mean()) - initial_loss
            confidence = measure_confidence(model, passages)
            points.append({"step": step, "protected": confidence, "loss_increase": increase})
            is_lower = confidence["confidence_distance"] < best["protected"]["confidence_distance"]
            if is_lower and increase <= config.max_added_loss:
                best, best_model = points[-1], model.copy()
        distance, increase = points[-1]["protected"]["confidence_distance"], points[-1]["loss_increase"]
        note = f"confidence distance {distance:.3f}, {increase:+.3f} nats elsewhere"
        callbacks.on_progress(step, config.steps, note)
    callbacks.check_cancelled("Cancelled; nothing was written.")
    if best["step"] == 0:
        raise UserError(
            f"No step reduced the confidence on the passages within a loss increase of {config.max_added_loss:g} nats "
            f"elsewhere. The last step has a confidence distance of {distance:.3f} and {increase:+.3f} nats. Raise "
            "--max-added-loss, or lower --theta or --learning-rate."
        )
    return best_model, best, points


def relearn(
    original: ReplacementModel, protected: ReplacementModel, passages: EncodedTexts, config: ProtectConfig
) -> Measured | None:
    """Fine-tune C and the gates on every other passage, as an attacker with the weights could, at a fixed centre, and
    measure the confidence on the others. The original runs after the same attack are the baseline for what the
    attacker's half reveals. None with fewer than two passages or with ``attack_steps`` 0."""
    known, unknown = passages.select(slice(0, None, 2)), passages.select(slice(1, None, 2))
    if not len(unknown) or not config.attack_steps:
        return None

    def attacked(model: ReplacementModel) -> ReplacementModel:
        model = model.copy()
        optimizer = torch.optim.Adam(model.trainable_parameters(), lr=config.learning_rate)
        for _ in range(config.attack_steps):
            _take_step(model, optimizer, model.gradient(known, next_token_loss, 1.0)[1])
        return model

    models = {"original": original, "protected": protected, "attacked": attacked(protected)}
    models["original_attacked"] = attacked(original)
    measured = {name: measure_confidence(model, unknown) for name, model in models.items()}
    return {"steps": config.attack_steps, "passages": len(unknown), **measured}


def protect(
    language_model: LanguageModel,
    runs: Sequence[Run],
    names: Sequence[str],
    passages: Sequence[Passage],
    retain_SL: Tensor,
    config: ProtectConfig,
    unprotected: Sequence[Passage] = (),
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[ReplacementModel, Measured]:
    """Fine-tune copies of some runs on some passages. Return those of the best step, and their measurements as plain
    data. Of the retain set, half is trained on, an eighth selects the best step, and the rest is measured.

    Raises:
        CancelledError: the task was cancelled; nothing was written.
        UserError: the runs, the passages or the retain set cannot be used, no step is better than the original runs, or
            a loss is NaN or infinite.
    """
    check_compatible_runs(runs)
    original = ReplacementModel.from_runs(language_model, runs)
    encoded = partial(
        encode, language_model, skip_tokens=config.skip_tokens, start_token=runs[0].config.text.start_token
    )
    texts = encoded([passage.text for passage in passages])
    disjoint_SL = drop_overlapping(retain_SL, texts)
    half, eighth = len(disjoint_SL) // 2, len(disjoint_SL) // 8
    if not eighth:
        raise UserError(
            f"The retain set has {len(disjoint_SL)} sequences without a part of a passage, but at least 8 are needed. "
            "Give more text, or a larger --tokens."
        )
    train_SL, validation_SL, test_SL = disjoint_SL.split([half, eighth, len(disjoint_SL) - half - eighth])
    validation, test = score_all(validation_SL), score_all(test_SL)
    model, best, points = optimise(original.copy(), texts, train_SL, validation, config, callbacks)

    def compare(texts: EncodedTexts) -> dict[str, Confidence]:
        return {"before": measure_confidence(original, texts), "after": measure_confidence(model, texts)}

    variations, tokenizer = {}, language_model.tokenizer
    for kind, given in (variations_of(passages) | {"unprotected": [passage.text for passage in unprotected]}).items():
        lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in given]
        long_enough = [text for text, length in zip(given, lengths, strict=True) if length > config.skip_tokens]
        if long_enough:
            variations[kind] = compare(encoded(long_enough))
    before_S, after_S = text_losses(original, test), text_losses(model, test)
    result: Measured = finite(
        {
            "runs": names,
            "parents": [run.name for run in runs],
            "theta": config.theta,
            "learning_rate": config.learning_rate,
            "vocabulary": next(model.predictions(texts.select(slice(0, 1))))[0].shape[-1],
            "passages": len(texts),
            "steps": config.steps,
            "best_step": best["step"],
            "eval_points": points,
            "protected": compare(texts),
            "variations": variations,
            "retained": {
                "tokens": test_SL.numel(),
                "left_out": len(retain_SL) - len(disjoint_SL),
                "original": float(text_losses(ReplacementModel(language_model, {}), test).mean()),
                "before": float(before_S.mean()),
                "after": float(after_S.mean()),
                "loss_increase": asdict(Bootstrap(len(after_S), RESAMPLES, config.seed).mean(after_S - before_S)),
                "confidence": compare(test),
            },
            "relearning": relearn(original, model, texts, config),
        }
    )
    return model, result


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
    runs: Sequence[Run], model: ReplacementModel, result: Measured, config: ProtectConfig, data: Path, database: Engine
) -> None:
    """Write the new runs, each atomically and with the measurements. ``runs`` are the parents. Raises UserError if a
    new run exists by now, or the disk is full."""
    names = result["runs"]
    check_new_runs(names, data, database)
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
            model.layers[run.config.layer].cpu().save(folder)
            copy_tokenizer(run.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
            atomic_write(folder / RESULT_FILE, json.dumps(result, indent=1) + "\n")
            atomic_write(folder / RUN_FILE, settings.model_dump_json(indent=1) + "\n")
        register_run(Run(target, settings), database)
