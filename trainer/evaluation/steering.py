"""Strength sweeps over a random sample of experts: effects on sampled texts, with random baselines.

Shapes: R rows, T tokens, I input width, O output width, V vocabulary, P = R * T tokens.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.orm import Session
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config.analysis import SteeringEvaluationConfig
from mxd.trainer.config.steering import Sampling
from mxd.trainer.errors import UserError
from mxd.trainer.inference.generation import gumbel_noise, sample_tokens
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers.mxd import Routing
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AblationRecord, MeasurementRecord, SteeringStrengthRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.storage.run_sets import check_fits
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

Kind = Literal["none", "expert", "random_expert", "random_direction"]
"""none: baseline without intervention. expert: the expert is amplified. random_expert: a random expert of similar
density is amplified. random_direction: a random direction with the norm of the expert's contribution is added."""
KINDS: tuple[Kind, ...] = ("expert", "random_expert", "random_direction")


@dataclass(frozen=True)
class StrengthResult:
    """Effects of one strength on the texts, averaged over prompts and samples."""

    expert: int
    kind: Kind
    strength: float
    """Strength in units of the 99th percentile of the gate activation."""
    kl: float
    """KL divergence of the next-token distribution from the original one, in nats per token."""
    loss: float
    """Loss of the generated text under the original model, in nats per token."""
    self_similarity: float
    """Mean cosine similarity between the token counts of the samples of a prompt."""
    promoted_share: float
    """Share of generated tokens among the tokens that the expert promotes most."""


def median_results(
    results: Sequence[StrengthResult] | Sequence[SteeringStrengthRecord],
) -> dict[str, dict[float, dict[str, float]]]:
    """Median over experts of each metric, by kind and strength."""
    names = ("kl", "loss", "self_similarity", "promoted_share")
    medians: dict[str, dict[float, dict[str, float]]] = {}
    for kind, strength in dict.fromkeys((result.kind, result.strength) for result in results):
        group = [result for result in results if (result.kind, result.strength) == (kind, strength)]
        metrics = {name: float(np.median([getattr(result, name) for result in group])) for name in names}
        medians.setdefault(kind, {})[strength] = metrics
    return medians


class SteeringVectors(NamedTuple):
    expert: Tensor
    """Steered expert, [R]."""
    activation: Tensor
    """Gate activation added to the expert, [R]; 0 adds nothing."""
    direction: Tensor
    """Unit vector that replaces the direction of the contribution, [R, O]; zero keeps the contribution's direction."""

    def added(self, layer_pass: LayerPass) -> Tensor:
        rows, tokens, _ = layer_pass.x_STI.shape
        activation_P1, expert_P1 = (
            values.repeat_interleave(tokens).unsqueeze(1) for values in (self.activation, self.expert)
        )
        added_RTO = layer_pass.contribution(Routing(activation_P1, expert_P1)).reshape(rows, tokens, -1)
        redirected_RTO = added_RTO.norm(dim=2, keepdim=True) * self.direction.unsqueeze(1)
        return torch.where(self.direction.any(dim=1).view(-1, 1, 1), redirected_RTO, added_RTO)


@torch.no_grad()
def generate_texts(
    language_model: LanguageModel, layer: int, mlp: EditedMlp, prompt: list[int], seeds: list[int], sampling: Sampling
) -> Tensor:
    """Continue ``prompt`` in every row, [R, T]. Rows with the same seed share their sampling noise."""
    ids_RT = torch.tensor([prompt] * len(seeds))
    cache = None
    _ = language_model.can_continue_cache  # found out before the MLP is replaced
    for step in range(sampling.max_tokens):
        with language_model.replace_mlps({layer: mlp}):
            logits_RV, cache = language_model.next_logits(ids_RT, cache)
        noise = {seed: gumbel_noise(seed, step, logits_RV.shape[1]) for seed in set(seeds)}
        noise_RV = torch.stack([noise[seed] for seed in seeds])
        chosen = sample_tokens(logits_RV, [set(ids) for ids in ids_RT.tolist()], [sampling] * len(seeds), noise_RV)
        ids_RT = torch.cat([ids_RT, torch.tensor(chosen).unsqueeze(1)], dim=1)
    return ids_RT


@torch.no_grad()
def score_texts(
    language_model: LanguageModel, layer: int, mlp: EditedMlp, ids_RT: Tensor, start: int
) -> tuple[Tensor, Tensor]:
    """Mean KL divergence of the steered next-token distribution from the original one, and mean loss under the original
    model, of the tokens of each row from index ``start``; [R] each, in nats per token."""
    original_RTV = language_model.logits(ids_RT)[:, start - 1 : -1].log_softmax(dim=-1)
    with language_model.replace_mlps({layer: mlp}):
        steered_RTV = language_model.logits(ids_RT)[:, start - 1 : -1].log_softmax(dim=-1)
    kl_RT = F.kl_div(steered_RTV, original_RTV, log_target=True, reduction="none").sum(dim=-1).clamp_min(0)
    generated_RT = ids_RT[:, start:].to(original_RTV.device)
    loss_RT = -original_RTV.gather(2, generated_RT.unsqueeze(2))[..., 0]
    return kl_RT.mean(dim=1), loss_RT.mean(dim=1)


def self_similarity(generated_RT: Tensor) -> float:
    """Mean cosine similarity between the token counts of different texts; 1 for a single text."""
    if len(generated_RT) < 2:
        return 1.0
    counts_RV = F.normalize(F.one_hot(generated_RT).sum(dim=1).float(), dim=1)
    cosines_RR = counts_RV @ counts_RV.T
    pairs = len(generated_RT) * (len(generated_RT) - 1)
    return float((cosines_RR.sum() - cosines_RR.diagonal().sum()) / pairs)


def evaluate_steering(
    run: Run,
    config: SteeringEvaluationConfig,
    language_model: LanguageModel,
    database: Engine,
    *,
    callbacks: Callbacks = NO_CALLBACKS,
) -> list[StrengthResult]:
    """Sweep strengths for a random sample of experts, and replace the stored results.

    Raises:
        NotFoundError: the run is not in the database.
        UserError: the run's ablations are missing, it was trained on another language model, or a prompt is too long.
        CancelledError: the task was cancelled. Previous results are unchanged.
    """
    check_fits(language_model, run)
    with Session(database) as session:
        run_id = find_record(session, run.name).id
        query = select(AblationRecord).where(AblationRecord.run_id == run_id).order_by(AblationRecord.expert)
        ablations = session.scalars(query).all()
        if not ablations:
            raise UserError(f"No ablation data for {run.name}. Run 'mxd ablate {run.name}'.")
        p99 = select(ExpertRecord.expert, ExpertRecord.p99).where(ExpertRecord.run_id == run_id)
        units = dict[int, float](session.execute(p99).all())
    count = min(config.experts, len(ablations))
    drawn = np.random.default_rng(config.seed).choice(len(ablations), count, replace=False)
    results: list[StrengthResult] = []
    for number, index in enumerate(sorted(drawn.tolist())):
        callbacks.check_cancelled()
        results += _sweep(run, config, language_model, ablations[index], units)
        callbacks.on_progress(number + 1, count, "experts")
    with writing(database) as session:
        session.execute(delete(SteeringStrengthRecord).where(SteeringStrengthRecord.run_id == run_id))
        session.execute(insert(SteeringStrengthRecord), [{"run_id": run_id, **asdict(result)} for result in results])
        settings = config.model_dump(mode="json")
        command = "evaluate-steering"
        session.merge(MeasurementRecord(run_id=run_id, command=command, settings=settings, created_at=utc_now()))
    return results


def _sweep(
    run: Run,
    config: SteeringEvaluationConfig,
    language_model: LanguageModel,
    ablation: AblationRecord,
    units: Mapping[int, float],
) -> Iterator[StrengthResult]:
    """Yield one result per kind and strength of an expert. ``units`` are the experts' 99th percentiles."""
    layer, device = run.config.layer, language_model.device_of(run.config.layer)
    sparse_layer = run.layer.to(device)
    variants: list[tuple[Kind, float]] = [("none", 0.0), *itertools.product(KINDS, config.strengths)]
    zero_O = torch.zeros(sparse_layer.config.output_width)
    generator = torch.Generator().manual_seed(config.seed * 100_003 + ablation.expert)
    random_O = F.normalize(torch.randn(len(zero_O), generator=generator), dim=0)
    rows = []
    for kind, strength in variants:
        expert = ablation.random_expert if kind == "random_expert" else ablation.expert
        direction_O = random_O if kind == "random_direction" else zero_O
        rows += [(expert, strength * units[expert], direction_O)] * config.samples
    experts, activations, directions = zip(*rows, strict=True)
    vectors = (torch.tensor(experts), torch.tensor(activations), torch.stack(directions))
    mlp = EditedMlp(sparse_layer, SteeringVectors(*(values.to(device) for values in vectors)).added)
    sampling = Sampling(max_tokens=config.max_tokens)
    seeds = [config.seed + sample for sample in range(config.samples)] * len(variants)
    prompts = []
    for text in config.prompts:
        prompt = prompt_ids(language_model, text, sampling.max_tokens, run.config.text.start_token)
        ids_RT = generate_texts(language_model, layer, mlp, prompt, seeds, sampling)
        kl_R, loss_R = score_texts(language_model, layer, mlp, ids_RT, len(prompt))
        generated_RT = ids_RT[:, len(prompt) :]
        promoted_RT = torch.isin(generated_RT, torch.tensor([int(token) for token, _ in ablation.promoted]))
        parts = (values_R.split(config.samples) for values_R in (kl_R, loss_R, generated_RT, promoted_RT))
        measured = [
            (float(kl.mean()), float(loss.mean()), self_similarity(generated), float(promoted.float().mean()))
            for kl, loss, generated, promoted in zip(*parts, strict=True)
        ]
        prompts.append(measured)
    for (kind, strength), metrics in zip(variants, np.mean(prompts, axis=0).tolist(), strict=True):
        yield StrengthResult(ablation.expert, kind, strength, *metrics)
