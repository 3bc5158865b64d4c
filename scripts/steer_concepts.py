"""Steering towards concepts of labelled texts, with experts chosen by effect, by detection and at random.

Half of each concept's texts chooses everything and trains the judge. An expert chosen by effect has the largest
predicted change of the mean log-probability of texts with the concept minus that of texts without it, at equal
predicted price. Texts generated after eight openings are judged: a frozen classifier of words scores the concept, the
loss under the unedited model the fluency.

    python -m scripts.steer_concepts TEXTS.parquet steer-concepts-by-effect.jsonl

One line per concept is appended to the output, so a stopped run continues where it was. The summary goes to
OUTPUT.json.

Shapes: R rows, T tokens, P tokens of all rows, E texts, N experts, O output width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.analysis.edit_price import units_of
from mxd.trainer.analysis.effect_search import expert_effects, unit_prices
from mxd.trainer.analysis.effects import differentiable_forward, gradients_of, layers_of, read_target
from mxd.trainer.config.analysis import ContinuationTarget
from mxd.trainer.config.steering import Sampling
from mxd.trainer.data.readers import read_labelled
from mxd.trainer.inference.generation import gumbel_noise, sample_tokens
from mxd.trainer.inference.units import all_units
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import residual_at
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Bootstrap, auroc_interval, aurocs

RUNS, MAIN = ("smollm2-l4", "smollm2-l10", "smollm2-l16", "smollm2-l22"), "smollm2-l22"
NEGATIVE, LIMIT, TOKENS, NEW_TOKENS, SEED = "EEEEE", 40, 48, 24, 0
STRENGTHS = (2.0, 4.0)
MAX_LOSS_INCREASE = 1.1
"""Nats per token: a perplexity 3 times as large."""
COMBINED = 5
PROMPTS = (
    "I would like to tell you about",
    "This morning I found",
    "The most interesting thing is",
    "Here is what you need to know:",
    "My friend asked me about",
    "Let me explain",
    "It all started with",
    "Everybody should know that",
)


@dataclass(frozen=True, eq=False)
class Steering:
    """Addition of one row at strength 1: experts of runs with coefficients, or a direction with the norm of an expert's
    contribution in the main run."""

    method: str
    experts: tuple[tuple[str, int, float], ...]
    direction_O: Tensor | None = None


class Study:
    """The runs, the texts, and what is computed of each once."""

    def __init__(self, texts: Path) -> None:
        self.runs = {name: Run.load(name, Path("data/demo")) for name in RUNS}
        self.lm = LanguageModel.load(self.runs[MAIN].language_model_source, "cpu")
        _ = self.lm.can_continue_cache  # found out before MLPs are replaced
        self.layers = layers_of(self.lm, list(self.runs.values()))
        self.start = prompt_ids(self.lm, "", start_token=self.runs[MAIN].config.text.start_token)
        labelled = list(read_labelled(texts, "output", "output_concept"))
        self.texts = [each.text for each in labelled]
        self.labels = np.array([each.label for each in labelled])
        self.units = {name: units_of(run, all_units([run])) for name, run in self.runs.items()}
        self.prices = unit_prices(self.lm, list(self.runs.values()))

    def concepts(self) -> list[tuple[str, list[int], list[int]]]:
        """Name and texts of each concept, and the texts without any, drawn at random."""
        generator, found = np.random.default_rng(SEED), []
        names, counts = np.unique(self.labels[self.labels != NEGATIVE], return_counts=True)
        negative = generator.permutation(np.flatnonzero(self.labels == NEGATIVE))[:LIMIT].tolist()
        for name in names[np.argsort(-counts, kind="stable")]:
            found.append(
                (str(name), generator.permutation(np.flatnonzero(self.labels == name))[:LIMIT].tolist(), negative)
            )
        return found

    def ids(self, text: int) -> list[int]:
        """First tokens of a text."""
        ids: list[int] = self.lm.tokenizer(self.texts[text], add_special_tokens=False, verbose=False)["input_ids"]
        return ids[:TOKENS]

    @cache  # noqa: B019
    def features(self, text: int) -> tuple[Tensor, Tensor]:
        """Mean gate activation of each expert of the main run, and the mean residual stream after its layer."""
        ids_1T, run = torch.tensor([[*self.start, *self.ids(text)]]), self.runs[MAIN]
        layer = run.config.layer
        with torch.no_grad():
            routing = run.layer.route(self.lm.mlp_inputs([layer], ids_1T)[layer][1:])
            residual_W = residual_at(self.lm, layer + 1, ids_1T)[0, 1:].mean(0)
        dense_TN = torch.zeros(len(routing.indices_TK), run.layer.config.num_experts)
        return dense_TN.scatter_add_(1, routing.indices_TK, routing.activations_TK).mean(0), residual_W

    @cache  # noqa: B019
    def effects(self, text: int) -> dict[str, Tensor]:
        """Derivative of the text's mean log-probability per token with respect to one unit of each expert, by run."""
        reading = read_target(self.lm, self.start, ContinuationTarget(text=self.lm.tokenizer.decode(self.ids(text))))
        forward = differentiable_forward(reading, self.layers)
        value_1 = reading.value(forward) / (len(reading.ids) - 1)
        gradients = gradients_of(value_1, [forward.outputs_BTO[layer] for layer in self.layers])
        found = {}
        for (name, run), gradient_BTO in zip(self.runs.items(), gradients, strict=True):
            x_TI = forward.inputs_BTI[run.config.layer][0].detach()
            found[name] = expert_effects(run.layer, x_TI, gradient_BTO[0]) * self.units[name]
        return found


def choose(
    study: Study, number: int, positive: Sequence[int], negative: Sequence[int]
) -> tuple[list[Steering], dict[str, int]]:
    """Additions of each method, chosen on the first half of the texts."""
    own, other = positive[::2], negative[::2]
    random = np.random.default_rng((SEED, number))
    methods: list[Steering] = []
    experts: dict[str, int] = {}
    contrasts = {
        name: torch.stack([study.effects(text)[name] for text in own]).mean(0)
        - torch.stack([study.effects(text)[name] for text in other]).mean(0)
        for name in RUNS
    }
    per_root = {
        name: torch.where(study.prices[name] > 0, contrasts[name] / study.prices[name].sqrt(), 0.0) for name in RUNS
    }

    def single(method: str, expert: int) -> None:
        experts[method] = expert
        methods.append(Steering(method, ((MAIN, expert, float(study.units[MAIN][expert])),)))

    means = [torch.stack([study.features(text)[0] for text in texts]).numpy() for texts in (own, other)]
    detected = int(aurocs(*means).argmax())
    alive = [each for each in (study.units[MAIN] > 0).nonzero()[:, 0].tolist() if each != detected]
    single("detection", detected)
    single("effect", int(per_root[MAIN].argmax()))
    single("random expert", int(random.choice(alive)))
    best = sorted(
        (
            (float(per_root[name][expert]), name, expert)
            for name in RUNS
            for expert in per_root[name].topk(COMBINED).indices.tolist()
        ),
        reverse=True,
    )[:COMBINED]
    at_random = [(name, int(random.choice((study.units[name] > 0).nonzero()[:, 0].numpy()))) for _, name, _ in best]
    price = float(study.prices[MAIN][experts["effect"]])
    for method, chosen in (("five by effect", [each[1:] for each in best]), ("five random", at_random)):
        # The cheapest split of a wanted first-order effect: strengths in proportion to effect over price.
        shares = [abs(float(contrasts[name][expert] / study.prices[name][expert])) for name, expert in chosen]
        total = sum(
            share**2 * float(study.prices[name][expert]) for share, (name, expert) in zip(shares, chosen, strict=True)
        )
        scale = (price / total) ** 0.5
        methods.append(
            Steering(
                method,
                tuple(
                    (name, expert, scale * share * float(study.units[name][expert]))
                    for share, (name, expert) in zip(shares, chosen, strict=True)
                ),
            )
        )
    residuals = [torch.stack([study.features(text)[1] for text in texts]).mean(0) for texts in (own, other)]
    reference = (MAIN, detected, float(study.units[MAIN][detected]))
    methods.append(Steering("difference of means", (reference,), F.normalize(residuals[0] - residuals[1], dim=0)))
    return methods, experts


class SteeredLayer:
    """Adds the steering of each row to the MLP output of one run's layer."""

    def __init__(self, run: Run, rows: Sequence[tuple[Steering, float]]) -> None:
        self.layer = run.layer
        own = [
            [(e, strength * a) for name, e, a in steering.experts if name == run.name] for steering, strength in rows
        ]
        width = max(1, *(len(each) for each in own))
        padded = [[*each, *[(0, 0.0)] * (width - len(each))] for each in own]
        self.routing = Routing(
            torch.tensor([[a for _, a in row] for row in padded]), torch.tensor([[e for e, _ in row] for row in padded])
        )
        zero_O = torch.zeros(run.layer.config.output_width)
        self.direction_RO = torch.stack([zero_O if s.direction_O is None else s.direction_O for s, _ in rows])

    def __call__(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        rows, tokens, _ = x_RTI.shape
        routing = Routing(*(values.repeat_interleave(tokens, dim=0) for values in self.routing))
        dense_PM = self.layer.dense_output(x_RTI.reshape(rows * tokens, -1))
        added_RTO = self.layer.contribution(dense_PM, routing).reshape(rows, tokens, -1)
        redirected_RTO = added_RTO.norm(dim=2, keepdim=True) * self.direction_RO.unsqueeze(1)
        is_redirected_R = self.direction_RO.any(dim=1).view(-1, 1, 1)
        return mlp() + torch.where(is_redirected_R, redirected_RTO, added_RTO)


@torch.no_grad()
def generate(study: Study, functions: dict[int, SteeredLayer], prompt: list[int], seed: int, rows: int) -> Tensor:
    """Continue a prompt in every row, [R, T]. All rows share the noise of the sampling."""
    sampling, ids_RT, cache = Sampling(max_tokens=NEW_TOKENS), torch.tensor([prompt] * rows), None
    new_RT = ids_RT
    for step in range(NEW_TOKENS):
        with study.lm.replace_mlps(functions):
            logits_RV, cache = study.lm.next_logits(new_RT, cache)
        noise_RV = gumbel_noise(seed, step, logits_RV.shape[1]).expand(rows, -1)
        chosen = sample_tokens(logits_RV, [set(ids) for ids in ids_RT.tolist()], [sampling] * rows, noise_RV)
        new_RT = torch.tensor(chosen).unsqueeze(1)
        ids_RT = torch.cat([ids_RT, new_RT], dim=1)
    return ids_RT


@torch.no_grad()
def original_losses(language_model: LanguageModel, ids_RT: Tensor, start: int) -> Tensor:
    """Mean loss [R] of the tokens from index ``start`` under the original model, in nats per token."""
    losses = []
    for part_RT in ids_RT.split(32):
        logits_RTV = language_model.logits(part_RT)[:, start - 1 : -1]
        targets_RT = part_RT[:, start:].to(logits_RTV.device)
        losses.append(F.cross_entropy(logits_RTV.transpose(1, 2), targets_RT, reduction="none").mean(dim=1))
    return torch.cat(losses)


def run_concept(study: Study, number: int, name: str, positive: list[int], negative: list[int]) -> dict[str, Any]:
    """All measurements of a concept."""
    methods, experts = choose(study, number, positive, negative)
    classifier = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[^\w\s]"),
        LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000),
    )
    training = [*positive[::2], *negative[::2]]
    classifier.fit([study.texts[text] for text in training], [1] * len(positive[::2]) + [0] * len(negative[::2]))

    def scores(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        probabilities: np.ndarray[Any, Any] = classifier.predict_proba(list(texts))[:, 1]
        return probabilities

    tests = [np.array([scores([study.texts[text]])[0] for text in texts[1::2]]) for texts in (positive, negative)]
    rows = [(Steering("none", ()), 0.0), *((method, strength) for method in methods for strength in STRENGTHS)]
    functions = {run.config.layer: SteeredLayer(run, rows) for run in study.runs.values()}
    gains, increases, examples = [], [], []
    for place, prompt in enumerate(PROMPTS):
        ids = prompt_ids(study.lm, prompt, start_token=study.runs[MAIN].config.text.start_token)
        ids_RT = generate(study, functions, ids, SEED + place, len(rows))
        losses_R = original_losses(study.lm, ids_RT, len(ids)).numpy()
        texts = study.lm.tokenizer.batch_decode(ids_RT[:, len(ids) :])
        score_R = scores(texts)
        gains.append((score_R[1:] - score_R[0]).tolist())
        increases.append((losses_R[1:] - losses_R[0]).tolist())
        examples.append(texts if place == 1 else [])
    return {
        "concept": name,
        "texts": len(positive),
        "experts": experts,
        "combination": [
            list(each) for method in methods if method.method == "five by effect" for each in method.experts
        ],
        "classifier_auroc": vars(auroc_interval(tests[0], tests[1], 1000, SEED)),
        "doses": [
            {
                "method": method.method,
                "strength": strength,
                "gain": [each[row] for each in gains],
                "loss_increase": [each[row] for each in increases],
                "example": next(each[row + 1] for each in examples if each),
            }
            for row, (method, strength) in enumerate(rows[1:])
        ],
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over concepts with its 95 % interval."""
    return vars(Bootstrap(len(values), 1000, SEED).mean(np.array(values)))


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each method at the strength with the largest gain on every second prompt, measured on the others."""
    names = list(dict.fromkeys(dose["method"] for dose in lines[0]["doses"]))
    chosen: dict[str, list[tuple[float, float, float]]] = {}
    for name in names:
        for line in lines:
            own = [dose for dose in line["doses"] if dose["method"] == name]
            allowed = [dose for dose in own if np.mean(dose["loss_increase"][::2]) <= MAX_LOSS_INCREASE]
            best = max(allowed, key=lambda dose: float(np.mean(dose["gain"][::2])), default=None)
            value = (0.0, 0.0, 0.0)
            if best is not None:
                value = (
                    best["strength"],
                    float(np.mean(best["gain"][1::2])),
                    float(np.mean(best["loss_increase"][1::2])),
                )
            chosen.setdefault(name, []).append(value)

    def difference(name: str, other: str) -> dict[str, float]:
        return interval([own[1] - its[1] for own, its in zip(chosen[name], chosen[other], strict=True)])

    return {
        "concepts": len(lines),
        "classifier_auroc": interval([line["classifier_auroc"]["value"] for line in lines]),
        "methods": {
            name: {
                "strengths": [each[0] for each in chosen[name]],
                "gain": interval([each[1] for each in chosen[name]]),
                "loss_increase": interval([each[2] for each in chosen[name]]),
                "over_random": difference(name, "five random" if name.startswith("five") else "random expert"),
                "over_detection": difference(name, "detection"),
                "over_difference_of_means": difference(name, "difference of means"),
            }
            for name in names
        },
    }


def main(texts: str, output: str) -> None:
    """Measure the concepts that the output does not have yet, then write the summary."""
    path = Path(output)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    study = Study(Path(texts))
    for number, (name, positive, negative) in enumerate(study.concepts()):
        if name not in {line["concept"] for line in done}:
            done.append(run_concept(study, number, name, positive, negative))
            with path.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(number, name, file=sys.stderr, flush=True)
    path.with_suffix(".json").write_text(json.dumps({**summary(done), "lines": done}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
