"""Steer towards concepts with experts that detect them, and score the texts without a judge.

After AxBench (Wu et al., arXiv 2501.17148): experts are found on labelled texts, and texts are scored for concept and
fluency. Here a frozen classifier of words takes the place of the judge for the concept, and the loss under the unedited
model the place of the one for fluency.

Shapes: R rows, T tokens, O output width, P prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config import Sampling
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.steering import SteeredMlp, SteeringVectors, generate_texts, original_losses
from mxd.trainer.experimental.concepts.config import ConceptSteeringConfig
from mxd.trainer.experimental.concepts.detection import WordClassifier, expert_of_equal_density
from mxd.trainer.experimental.concepts.features import Floats, TextFeatures, text_features
from mxd.trainer.experimental.concepts.results import ConceptDetection, ConceptSteering, Dose, Method
from mxd.trainer.experimental.concepts.summary import curves, mean_aurocs, method_summaries
from mxd.trainer.experimental.concepts.texts import ConceptTexts, read_concepts
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.layers.base import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.auroc import auroc_interval, aurocs
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


@dataclass(frozen=True)
class _Concept:
    """A concept with everything that was chosen for it."""

    detection: ConceptDetection
    classifier: WordClassifier
    difference_O: Tensor
    """Difference of the mean residual streams, norm 1."""
    random_O: Tensor
    """Random direction, norm 1."""


@dataclass(frozen=True)
class _Row:
    """One text to generate after each prompt."""

    concept: _Concept
    method: Method
    strength: float


def steer_concepts(
    run: Run,
    transcoder: Run | None,
    config: ConceptSteeringConfig,
    language_model: LanguageModel,
    callbacks: Callbacks = NO_CALLBACKS,
) -> ConceptSteering:
    """Find experts for the concepts of labelled texts, and steer with them and with controls.

    Raises:
        NotFoundError: there is no file of labelled texts.
        UserError: it cannot be used, the runs replace different layers, or the run has no units.
        CancelledError: the task was cancelled.
    """
    runs = [run] if transcoder is None else [run, transcoder]
    _check(runs, language_model)
    texts, concepts = read_concepts(config)
    features = text_features(language_model, runs, texts, config.tokens, callbacks)
    chosen = [_choose(number, each, texts, features, config) for number, each in enumerate(concepts)]
    if missing := [each.detection.expert for each in chosen if each.detection.expert not in run.units]:
        raise UserError(f"Expert {missing[0]} of '{run.name}' has no unit. Run: mxd index {run.name}")
    doses, baseline = _steer(run, transcoder, chosen, config, language_model, callbacks)
    detections = tuple(each.detection for each in chosen)
    return ConceptSteering(
        run=run.name,
        layer=run.config.layer,
        transcoder=None if transcoder is None else transcoder.name,
        score_without_steering=baseline,
        detection=detections,
        mean_auroc=mean_aurocs(detections, config),
        curves=curves(doses, config),
        methods=method_summaries(doses, config),
        doses=tuple(doses),
    )


def _check(runs: Sequence[Run], language_model: LanguageModel) -> None:
    if len({run.config.layer for run in runs}) > 1:
        raise UserError(f"'{runs[1].name}' replaces another layer than '{runs[0].name}'. Choose runs of one layer.")
    for run in runs:
        check_fits(language_model, run)


def _choose(
    number: int, of_concept: ConceptTexts, texts: Sequence[str], features: TextFeatures, config: ConceptSteeringConfig
) -> _Concept:
    """Choose expert, feature, direction and classifier on the first half of the texts; measure them on the second.

    The AUROC of the best of many experts would be too high on the texts that chose it.
    """
    (positive, negative), (held_positive, held_negative) = of_concept.half(0), of_concept.half(1)
    generator = np.random.default_rng((config.seed, number))
    best = [int(aurocs(each_EN[positive], each_EN[negative]).argmax()) for each_EN in features.activation_EN]
    control = expert_of_equal_density(features.density_N[0], best[0], generator)
    residual_EW = features.residual_EW
    difference_W = residual_EW[positive].mean(axis=0) - residual_EW[negative].mean(axis=0)
    difference_W /= np.linalg.norm(difference_W)
    classifier = WordClassifier.train([texts[index] for index in positive], [texts[index] for index in negative])
    scores = classifier.scores(texts).astype(np.float32)

    def held_out(value_E: Floats) -> Interval:
        return auroc_interval(value_E[held_positive], value_E[held_negative], config.resamples, config.seed)

    values: dict[str, Floats] = {
        "expert": features.activation_EN[0][:, best[0]],
        "random_expert": features.activation_EN[0][:, control],
        "difference_of_means": residual_EW @ difference_W,
    }
    if len(best) > 1:
        values["transcoder"] = features.activation_EN[1][:, best[1]]
    random_W = generator.standard_normal(len(difference_W)).astype(np.float32)
    return _Concept(
        detection=ConceptDetection(
            concept=of_concept.concept,
            texts=len(of_concept.positive),
            expert=best[0],
            random_expert=control,
            feature=best[1] if len(best) > 1 else None,
            classifier_auroc=held_out(scores),
            auroc={name: held_out(value_E) for name, value_E in values.items()},
        ),
        classifier=classifier,
        difference_O=torch.from_numpy(difference_W),
        random_O=F.normalize(torch.from_numpy(random_W), dim=0),
    )


def _steer(
    run: Run,
    transcoder: Run | None,
    chosen: Sequence[_Concept],
    config: ConceptSteeringConfig,
    language_model: LanguageModel,
    callbacks: Callbacks,
) -> tuple[list[Dose], float]:
    """Generate and score the texts of all rows after each prompt. Also return the mean score without steering."""
    methods: list[Method] = ["expert", "random_expert", "difference_of_means", "random_direction"]
    methods += [] if transcoder is None else ["transcoder"]
    rows = [_Row(each, method, s) for each in chosen for method in methods for s in config.strengths]
    mlp = SteeredMlp(run.layer.to(language_model.device_of(run.config.layer)), _vectors(run, transcoder, rows))
    gains: list[list[float]] = [[] for _ in rows]
    increases: list[list[float]] = [[] for _ in rows]
    baselines: list[float] = []
    for number, prompt in enumerate(config.prompts):
        callbacks.check_cancelled()
        texts, losses = _texts(language_model, run, mlp, prompt, number, config)
        for place, row in enumerate(rows):
            without, score = row.concept.classifier.scores([texts[0], texts[place + 1]]).tolist()
            gains[place].append(score - without)
            increases[place].append(losses[place + 1] - losses[0])
            baselines.append(without)
        callbacks.on_progress(number + 1, len(config.prompts), "steering")
    doses = [
        Dose(row.concept.detection.concept, row.method, row.strength, tuple(gain), tuple(increase))
        for row, gain, increase in zip(rows, gains, increases, strict=True)
    ]
    return doses, float(np.mean(baselines))


def _texts(
    language_model: LanguageModel, run: Run, mlp: SteeredMlp, prompt: str, number: int, config: ConceptSteeringConfig
) -> tuple[list[str], list[float]]:
    """New text of each row, with its loss under the unedited model. All rows share the noise of the sampling."""
    ids = prompt_ids(language_model, prompt, config.max_tokens, run.config.text.start_token)
    seeds = [config.seed + number] * len(mlp.vectors.expert)
    sampling = Sampling(max_tokens=config.max_tokens)
    ids_RT = generate_texts(language_model, run.config.layer, mlp, ids, seeds, sampling)
    losses: list[float] = original_losses(language_model, ids_RT, len(ids)).tolist()
    return language_model.tokenizer.batch_decode(ids_RT[:, len(ids) :]), losses


def _vectors(run: Run, transcoder: Run | None, rows: Sequence[_Row]) -> SteeringVectors:
    """Steering vectors of no steering, then of each row."""
    zero_O = torch.zeros(run.layer.config.output_width)
    experts, coefficients, directions = [0], [0.0], [zero_O]
    for row in rows:
        detection = row.concept.detection
        expert = detection.random_expert if row.method == "random_expert" else detection.expert
        experts.append(expert)
        coefficients.append(row.strength * run.units.get(expert, 0.0))
        directions.append(_direction(row, transcoder, zero_O))
    return SteeringVectors(torch.tensor(experts), torch.tensor(coefficients), torch.stack(directions))


def _direction(row: _Row, transcoder: Run | None, zero_O: Tensor) -> Tensor:
    """Direction with norm 1 that replaces the direction of the expert's contribution; zero to keep it."""
    if row.method == "transcoder":
        assert transcoder is not None and row.concept.detection.feature is not None
        routing = Routing(torch.ones(1, 1), torch.tensor([[row.concept.detection.feature]]))
        x_1I = torch.zeros(1, transcoder.layer.config.input_width)
        added_1O = transcoder.layer.contribution(transcoder.layer.dense_output(x_1I), routing)
        return F.normalize(added_1O[0].detach().float(), dim=0)
    directions = {"difference_of_means": row.concept.difference_O, "random_direction": row.concept.random_O}
    return directions.get(row.method, zero_O)
