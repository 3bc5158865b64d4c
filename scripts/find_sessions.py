"""Find experts that steer the language model.

    python scripts/find_sessions.py RUN sessions.json --data data/demo --dataset data/demo/text.jsonl.gz

Three steps, each on random numbers of its own:

1. Direct effect. Every living expert's contribution at a strength of 4 is added to the residual stream behind the last
   block, after a few openings, and unembedded. The experts with the largest gains of mutually similar tokens go on.
   Only tokens that are frequent in the dataset count. This is the direct path only, so it says most about late layers.
2. Choice of strength, as ``strength_sweep`` suggests it: the smallest one at which a concept score clearly exceeds that
   of a random expert of similar density, while the text stays fluent.
3. Judgement, on openings and seeds that had no part in the choice. The output has the figures and texts of both
   experts; an expert passes if it clearly exceeds its control on every opening, with a perplexity of at most 2 times
   the baseline's.

Shapes: E experts, P openings, I input width, O output width, V vocabulary size, M promoted tokens, W embedding width.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from sqlalchemy.orm import Session
from torch import Tensor
from torch.nn import functional as F

from mxd.backend.database.engine import open_database
from mxd.trainer.config.steering import Edit, Sampling, StrengthSweepConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.sequences import tokenize_documents
from mxd.trainer.inference.generation import run_alone
from mxd.trainer.inference.results import StrengthSweepDoneEvent
from mxd.trainer.inference.strength_sweep import StrengthSweep
from mxd.trainer.inference.units import with_control
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_write

OPENINGS = (
    "One day, the little girl went to the",
    "The best way to learn is",
    "He opened the door and",
    "I think that",
)
CHOICE_OPENING, CHOICE_SEED = OPENINGS[0], 0
JUDGED_OPENINGS, JUDGED_SEED = ("My friend called me and said that", "The report begins with"), 1_000
SCREENED_STRENGTH = 4.0
STRENGTHS = (1.5, 2.0, 3.0, 4.0, 6.0)
CHOICE = Sampling(max_tokens=24, samples=4, seed=CHOICE_SEED)
JUDGEMENT = Sampling(max_tokens=32, samples=8, seed=JUDGED_SEED)
EXPERTS_AT_ONCE = 32
NUM_TOKENS = 10
MIN_OCCURRENCES = 40
"""Occurrences from which a token counts as frequent."""


@dataclass(frozen=True)
class DirectEffect:
    """Tokens whose log-probability an expert raises most."""

    expert: int
    mean_gain: float
    """Mean gain in log-probability over the tokens and openings, in nats."""
    similarity: float
    """Mean cosine similarity between the unembedding vectors of the tokens."""
    tokens: list[str]


@torch.inference_mode()
def direct_effects(run: Run, language_model: LanguageModel, is_frequent_V: Tensor) -> Iterator[DirectEffect]:
    """Yield the direct effect of each expert that is not dead on the frequent tokens."""
    layer = run.layer
    x_PI, residual_PO = _last_token(run, language_model)
    dense_PO = layer.dense_output(x_PI)
    baseline_PV = language_model.unembed(residual_PO).log_softmax(dim=-1)
    unembedding_VW = language_model.module.get_output_embeddings().weight.float()
    unembedding_VW = F.normalize(unembedding_VW - unembedding_VW.mean(dim=0), dim=1)
    for experts_E in torch.tensor(sorted(run.units)).split(EXPERTS_AT_ONCE):
        units_E = torch.tensor([run.units[expert] for expert in experts_E.tolist()])
        strengths_E = SCREENED_STRENGTH * units_E
        columns = (values.repeat_interleave(len(OPENINGS))[:, None] for values in (strengths_E, experts_E))
        added = layer.contribution(dense_PO.repeat(len(experts_E), 1), Routing(*columns))
        logits = language_model.unembed(residual_PO.repeat(len(experts_E), 1) + added)
        gains_EPV = logits.log_softmax(dim=-1).unflatten(0, (-1, len(OPENINGS))) - baseline_PV
        gains_EV = gains_EPV.mean(dim=1).masked_fill(~is_frequent_V, -torch.inf)
        gains_EM, tokens_EM = gains_EV.topk(NUM_TOKENS)
        for expert, gains_M, tokens_M in zip(experts_E.tolist(), gains_EM, tokens_EM, strict=True):
            texts = [language_model.tokenizer.decode([token]) for token in tokens_M.tolist()]
            yield DirectEffect(expert, gains_M.mean().item(), _mean_cosine(unembedding_VW[tokens_M]), texts)


def frequent_tokens(dataset: str, language_model: LanguageModel) -> Tensor:
    """Mark the frequent tokens of a dataset, [V]."""
    counts_V = torch.zeros(language_model.config.vocab_size, dtype=torch.int64)
    for ids in tokenize_documents(TextConfig(dataset=dataset), language_model.tokenizer):
        counts_V += torch.bincount(torch.from_numpy(ids).long(), minlength=len(counts_V))
    return counts_V >= MIN_OCCURRENCES


def _mean_cosine(vectors_MW: Tensor) -> float:
    """Mean cosine similarity between different unit vectors."""
    count = len(vectors_MW)
    return float(((vectors_MW @ vectors_MW.T).sum() - count) / (count * (count - 1)))


def _last_token(run: Run, language_model: LanguageModel) -> tuple[Tensor, Tensor]:
    """Input of the run's MLP and final residual stream on the last token of each opening, [P, I] and [P, O]."""
    inputs, residuals = [], []
    for opening in OPENINGS:
        ids_1T = torch.tensor([prompt_ids(language_model, opening, start_token=run.config.text.start_token)])
        inputs.append(language_model.mlp_inputs([run.config.layer], ids_1T)[run.config.layer].float()[-1])
        residuals.append(language_model.residual(ids_1T)[0, -1].float())
    return torch.stack(inputs), torch.stack(residuals)


@dataclass(frozen=True)
class Steerer:
    """Strength sweeps of one run, with controls of similar density from its index."""

    run: Run
    language_model: LanguageModel
    session: Session

    def sweep(
        self, expert: int, prompt: str, strengths: tuple[float, ...], sampling: Sampling
    ) -> StrengthSweepDoneEvent:
        """Steer one prompt at several strengths."""
        edit = Edit(expert=expert, mode="add")
        config = StrengthSweepConfig(prompt=prompt, edits=(edit,), strengths=strengths, sampling=sampling)
        *_, done = run_alone(
            self.language_model,
            StrengthSweep.prepare(self.language_model, [self.run], with_control(self.session, config, self.run.name)),
        )
        assert isinstance(done, StrengthSweepDoneEvent)
        return done

    def judge(self, effect: DirectEffect) -> dict[str, object] | None:
        """Figures and texts of an expert at its suggested strength; None if there is none."""
        strength = self.sweep(effect.expert, CHOICE_OPENING, STRENGTHS, CHOICE).suggested
        if strength is None:
            return None
        sweeps = [self.sweep(effect.expert, opening, (strength,), JUDGEMENT) for opening in JUDGED_OPENINGS]
        points = [sweep.points[0] for sweep in sweeps]
        passed = all(point.exceeds_control and point.is_fluent for point in points)
        openings = [
            {"opening": opening, "baseline_text": sweep.baseline_text, **asdict(point)}
            for opening, sweep, point in zip(JUDGED_OPENINGS, sweeps, points, strict=True)
        ]
        control = sweeps[0].control
        return {**asdict(effect), "strength": strength, "control": control, "passed": passed, "openings": openings}


def main() -> None:
    """Write the judged experts, those that passed first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--dataset", required=True, help="text whose frequent tokens count")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--database-url", help="default: the database of the data folder")
    parser.add_argument("--experts", type=int, default=60, help="number of experts to steer (default: 60)")
    given = parser.parse_args()
    run = Run.load(given.run, given.data)
    language_model = LanguageModel.load(run.language_model_source, "cpu", torch.float32)
    is_frequent_V = frequent_tokens(given.dataset, language_model)
    promoting = direct_effects(run, language_model, is_frequent_V)
    effects = sorted(promoting, key=lambda effect: -effect.mean_gain * effect.similarity)
    judged: list[dict[str, object]] = []
    with Session(open_database(given.database_url or sqlite_url(given.data))) as session:
        steerer = Steerer(run, language_model, session)
        for number, effect in enumerate(effects[: given.experts], start=1):
            if (result := steerer.judge(effect)) is not None:
                judged.append(result)
            tokens = " ".join(map(repr, effect.tokens[:5]))
            verdict = "no strength" if result is None else f"{result['strength']}, passed: {result['passed']}"
            print(f"{number}/{given.experts} expert {effect.expert} ({tokens}): {verdict}", flush=True)
            judged.sort(key=lambda each: not each["passed"])
            atomic_write(given.out, json.dumps(judged, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
