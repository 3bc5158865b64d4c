"""One layer being fitted: weights, optimiser, and what is watched as steps go by.

Shapes: T tokens, N experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from trainer.anatomy import Anatomy, MlpShape
from trainer.checkpoint import Position, load_checkpoint, moments_of, save_checkpoint
from trainer.collapse.penalties import penalty
from trainer.collapse.random_k import drawn_k
from trainer.collapse.revival import revive
from trainer.config import CollapseConfig, LayerConfig, OptimizerConfig, TrainConfig
from trainer.distributed import ALONE, Ranks
from trainer.errors import UserError
from trainer.expert_ranks import ExpertRanks, measure_ranks
from trainer.gate_config import FITTED, settled
from trainer.language_model import Capture, LanguageModel
from trainer.layers.matching import Widths, default_rank, matched_num_experts
from trainer.layers.mxd import MxD
from trainer.layers.nested import nested_answers, nested_ks
from trainer.layers.registry import build_layer
from trainer.layers.sharded import Shards
from trainer.layers.sparse import LayerOutput, Routing, SparseLayer
from trainer.methods import NO_TOP_K, WITH_RANK
from trainer.metrics import active_counts, error_of, l0
from trainer.starts import chosen_start, start_layer

Experts = Literal["copied", "spread"]
"""Whether each of several processes has all experts, or each a part of them."""

DEAD_AFTER = 262_144
"""Tokens without a single activation after which an expert counts as dead."""

RANKED = 8
"""Experts, at most, whose matrices are taken apart on the way."""


class StepMeasures(NamedTuple):
    """Of the steps since the last reading, averaged."""

    normalised_mse: float
    l0: float
    largest_usage: float
    dead_share: float


@dataclass
class _Watch:
    """Sums since the last reading; kept as tensors so that no step waits for the device."""

    steps: int
    errors: Tensor
    active: Tensor
    counts_N: Tensor

    @classmethod
    def fresh(cls, num_experts: int, device: torch.device) -> _Watch:
        zero = torch.zeros((), device=device)
        return cls(0, zero, zero.clone(), torch.zeros(num_experts, dtype=torch.int64, device=device))


@dataclass
class Fit:
    """A layer, its optimiser and its position. ``step`` takes one batch; everything else is reading and saving."""

    layer: SparseLayer
    optimizer: torch.optim.AdamW
    config: TrainConfig
    total_steps: int
    last_active_N: Tensor
    """Tokens taken when each expert was last active."""
    taken: int = 0
    """Steps taken."""
    tokens: int = 0
    """Tokens taken."""
    seconds_before: float = 0.0
    ranks: Ranks = ALONE
    """Which of several processes this is; each takes its share of every step, and all have the same weights."""
    watch: _Watch = field(init=False)
    answer: nn.Module = field(init=False)
    """The layer, with gradients that are averaged over the ranks."""

    def __post_init__(self) -> None:
        self.watch = _Watch.fresh(self.layer.config.num_experts, self.last_active_N.device)
        self.answer = self.layer if self.layer.shards else self.ranks.data_parallel(self.layer)

    @classmethod
    def start(
        cls,
        config: TrainConfig,
        language_model: LanguageModel,
        total_steps: int,
        ranks: Ranks = ALONE,
        experts: Experts = "copied",
        sample: Capture | None = None,
    ) -> Fit:
        """A layer with its starting values. The same config gives the same values, whoever holds which experts.

        Args:
            sample: activations of the text; needed where ``needs_sample`` says so.

        Raises:
            UserError: several ranks cannot fit what is asked for, or the method has no such start.
        """
        if config.collapse != CollapseConfig() and not ranks.is_alone:
            raise UserError("What is done against collapse looks at all experts at once; fit with one process.")
        if config.smallest_k is not None and not ranks.is_alone:
            raise UserError("Several K are fitted together by one process alone; leave --smallest-k out, or torchrun.")
        if config.collapse.revive_after is not None and config.gate.gate != "flat":
            raise UserError(
                f"An expert is revived by turning its own row of the gate, and a {config.gate.gate} gate's are shared; "
                "leave --revive-after out."
            )
        layer_config = layer_config_of(config, language_model.anatomy)
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            layer = build_layer(layer_config)
        start_layer(layer, config, language_model, sample)
        if experts == "spread" and not ranks.is_alone:
            layer.keep_part(Shards(ranks.rank, ranks.world, layer.config.num_experts))
        device = language_model.device_of(config.layer)
        layer.to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0, weight_decay=0.0, fused=True)
        never = torch.zeros(layer_config.num_experts, dtype=torch.int64, device=device)
        return cls(layer, optimizer, config, total_steps, never, ranks=ranks)

    def step(self, batch: Capture) -> None:
        """Take one step on a batch of activations."""
        if self.taken == 0 and chosen_start(self.config) != "examples":
            # D starts at zero, so the layer's first answer is b_out alone; the mean is the best constant.
            self.layer.get_parameter("output_bias").data.copy_(self.ranks.mean_(batch.output_TO.mean(dim=0)))
        x_TI = batch.read_by(self.layer)
        output, errors = self._answered(x_TI, batch.output_TO)
        added = penalty(self.config.collapse, output.routing, self.layer)
        self.optimizer.zero_grad()
        (errors.mean() if added is None else errors.mean() + added).backward()
        if self.layer.shards is not None:
            self._average_gradients()
        self.descend(output.routing, errors[-1].detach())
        self._revive(x_TI, output, batch.output_TO)

    def descend(self, routing: Routing, error: Tensor) -> None:
        """Take the step that the gradients ask for, at the schedule's rate.

        Args:
            routing: of this process's tokens of the step.
            error: the layer's normalised MSE on them.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config.optimizer, self.taken, self.total_steps)
        self.optimizer.step()
        self.taken += 1
        self.tokens += len(routing.indices_TK) * self.ranks.world
        counts_N = active_counts(routing, self.layer.config.num_experts)
        self.last_active_N.masked_fill_(counts_N > 0, self.tokens)
        self.watch.steps += 1
        self.watch.errors = self.watch.errors + error
        self.watch.active = self.watch.active + l0(routing)
        self.watch.counts_N += counts_N

    def _answered(self, x_TI: Tensor, target_TO: Tensor) -> tuple[LayerOutput, Tensor]:
        """The layer's answer and its errors: with K experts alone, or with each number that is fitted, K last."""
        smallest = self.config.smallest_k
        if smallest is None:
            output: LayerOutput = self.answer(x_TI, drawn_k(self.config, self.layer.config.k, self.taken))
            return output, error_of(self.layer, output.output_TO, target_TO).unsqueeze(0)
        nested = nested_answers(self.layer, x_TI, nested_ks(self.layer.config.k, smallest))
        return nested.whole, torch.stack([error_of(self.layer, output_TO, target_TO) for output_TO in nested.outputs])

    def _revive(self, x_TI: Tensor, output: LayerOutput, target_TO: Tensor) -> None:
        """Let experts that have long been quiet begin again, a few times on the way, and not while the rate falls."""
        after = self.config.collapse.revive_after
        every = None if after is None else max(1, after // len(x_TI))
        falling = self.taken > (1 - self.config.optimizer.decay) * self.total_steps
        if after is None or every is None or falling or self.taken % every:
            return
        dead_N = self.tokens - self.last_active_N >= after
        revive(self.layer, self.optimizer, dead_N, x_TI, output, target_TO)
        self.last_active_N.masked_fill_(dead_N, self.tokens)

    def read(self) -> StepMeasures:
        """Means since the last reading, over all ranks; starts the next stretch."""
        watch, self.watch = self.watch, _Watch.fresh(self.layer.config.num_experts, self.last_active_N.device)
        for mean in (watch.errors, watch.active):
            self.ranks.mean_(mean)
        self.ranks.sum_(watch.counts_N)
        self.ranks.max_(self.last_active_N)
        tokens = watch.steps * (self.tokens // max(self.taken, 1))
        quiet_N = self.tokens - self.last_active_N >= min(DEAD_AFTER, self.tokens)
        return StepMeasures(
            normalised_mse=watch.errors.item() / max(watch.steps, 1),
            l0=watch.active.item() / max(watch.steps, 1),
            largest_usage=watch.counts_N.max().item() / max(tokens, 1),
            dead_share=quiet_N.float().mean().item(),
        )

    def ranks_of_experts(self) -> ExpertRanks | None:
        """Of a few experts, evenly apart; None where experts are no matrices, or others hold some of them."""
        if not isinstance(self.layer, MxD) or self.layer.shards is not None:
            return None
        count = self.layer.config.num_experts
        return measure_ranks(self.layer, range(0, count, -(-count // RANKED)))

    def save(self, folder: Path, seconds: float) -> None:
        """Write a checkpoint; the first rank does, and all must ask."""
        self.ranks.max_(self.last_active_N)
        whole, moments = self.layer.whole(), moments_of(self.layer, self.optimizer)
        if self.ranks.is_first:
            save_checkpoint(folder, whole, moments, self.last_active_N, Position(self.taken, seconds))

    def _average_gradients(self) -> None:
        """Where experts are spread, a table's gradient is already the sum over all tokens of all ranks."""
        for name, parameter in self.layer.named_parameters():
            assert parameter.grad is not None
            if name in self.layer.expert_tables:
                parameter.grad /= self.ranks.world
            else:
                self.ranks.mean_(parameter.grad)

    def restore(self, checkpoint: Path, batch: int) -> None:
        """Go on from a checkpoint whose steps took ``batch`` tokens each."""
        position, last_active_N = load_checkpoint(checkpoint, self.layer, self.optimizer)
        self.last_active_N.copy_(last_active_N)
        self.taken, self.tokens = position.step, position.step * batch
        self.seconds_before = position.seconds


def learning_rate(schedule: OptimizerConfig, step: int, total: int) -> float:
    """Rate of the step with number ``step`` (from 0): linear warm-up, constant, linear decay to zero."""
    rise = (step + 1) / max(1.0, schedule.warmup * total)
    fall = (total - step) / max(1.0, schedule.decay * total)
    return schedule.learning_rate * min(1.0, rise, fall)


def layer_config_of(config: TrainConfig, anatomy: Anatomy) -> LayerConfig:
    """The layer that a run asks for, with the widths of the MLP that it replaces, or of all that it does.

    Raises:
        UserError: its settings do not go together, or the language model has no such layers.
    """
    if config.gate.gate not in FITTED:
        raise UserError(
            "An index is made of a flat gate that was fitted; fit with --gate flat, then use mxd approximate."
        )
    _refuse_what_does_not_go_together(config)
    shape, span = _shape_of(config, anatomy), len(config.layers)
    rank = config.rank or default_rank(config.method, shape.output_width)
    widths = Widths(shape.input_width, shape.hidden_width, shape.output_width, rank, span)
    num_experts = config.num_experts or matched_num_experts(config.method, widths, shape.encoder, config.gate)
    k = num_experts if config.method == "relu-mxd" else config.k
    return LayerConfig(
        method=config.method,
        input_width=shape.output_width if config.method == "autoencoder" else shape.input_width,
        hidden_width=shape.hidden_width,
        output_width=span * shape.output_width,
        num_experts=num_experts,
        k=k,
        activation=shape.activation,
        encoder=shape.encoder,
        rank=rank if config.method in WITH_RANK else None,
        smallest_k=config.smallest_k,
        gate=settled(config.gate, num_experts, k),
        span=span if config.method == "cross-layer-mxd" else None,
    )


def _shape_of(config: TrainConfig, anatomy: Anatomy) -> MlpShape:
    """Of the MLP whose input is read; those that are written have outputs as wide."""
    first, last, end = config.layer, config.layers[-1], len(anatomy.blocks)
    if first < end <= last:
        raise UserError(
            f"A span of {len(config.layers)} from layer {first} on ends at layer {last}, and {anatomy.source} has "
            f"layers 0 to {end - 1}; choose --span {end - first} or less, or an earlier --layer."
        )
    shape = anatomy.mlp_shape(first)
    other = next((it for it in config.layers if anatomy.mlp_shape(it).output_width != shape.output_width), None)
    if other is not None:
        raise UserError(f"The MLPs of layers {first} and {other} write outputs of different widths; end before that.")
    return shape


def _refuse_what_does_not_go_together(config: TrainConfig) -> None:
    method, collapse = config.method, config.collapse
    if config.rank is not None and method not in WITH_RANK:
        raise UserError(
            f"A {method} has no rank to choose; leave --rank out, or fit one of {', '.join(sorted(WITH_RANK))}."
        )
    if config.span is not None and method != "cross-layer-mxd":
        raise UserError(f"A {method} writes one layer; leave --span out, or choose --method cross-layer-mxd.")
    if config.smallest_k is not None and method in NO_TOP_K:
        raise UserError(f"A {method} has no K that could be smaller; leave --smallest-k out, or fit another --method.")
    if config.smallest_k is not None and config.smallest_k > config.k:
        raise UserError(f"The smallest K is {config.smallest_k} and K is {config.k}; lower --smallest-k.")
    if config.smallest_k is not None and collapse.k_spread:
        raise UserError("--smallest-k fits several K on every step and --k-spread draws one; choose one of them.")
    if method == "molt" and (collapse.diversity or collapse.revive_after):
        raise UserError(
            "The transforms of a molt have no rows to compare or to begin again; leave --diversity and "
            "--revive-after out."
        )
    if method in NO_TOP_K and collapse.revive_after:
        raise UserError(f"Revival needs a K for every token, and a {method} has none; leave --revive-after out.")
