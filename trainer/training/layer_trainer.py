"""Training of one layer: weights, optimizer, metrics and checkpoints.

**Recorded steps.** A step launches about a hundred kernels, each of which costs the CPU some microseconds. Small steps
of small layers take longer to launch than to compute. So a step can be recorded as one CUDA graph. It repeats the same
kernels on the same memory, so what differs between steps must be a tensor that stays in place: activations, learning
rate, token count, weight of the centre.

Shapes: T tokens, I input width, O output width, N experts, K active experts.
"""

import copy
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mxd.trainer.config.base import Config
from mxd.trainer.config.layer import WEIGHTS_FILE, LayerConfig, method_traits
from mxd.trainer.config.training import DEAD_AFTER_TOKENS, OptimizerConfig, RegularizationConfig, TrainConfig
from mxd.trainer.data.sequences import TEXT_START, TextPosition
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import (
    ExpertRanks,
    LayerOutput,
    MxD,
    Routing,
    SparseLayer,
    active_counts,
    centre_weight,
    measure_ranks,
    normalized_mse,
    output_routing_share,
    read_weights,
)
from mxd.trainer.layers.ops import Shards
from mxd.trainer.layers.tensor_files import read_rows, save_part, save_tensors
from mxd.trainer.layers.variants import build_layer, matched_num_experts
from mxd.trainer.storage.run import CHECKPOINT_PREFIX, checkpoints, step_of
from mxd.trainer.training.initialization import initialize, needs_sample
from mxd.trainer.training.precision import matmul_precision, product_dtype, products_in
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import atomic_directory, disk_errors, explained, partial_folder, read_json
from mxd.trainer.utils.memory import release_pages, trim_freed_memory

Launch = Literal["eager", "graph"]
"""How the kernels of a step are launched: one by one, or as one CUDA graph."""
Step = Callable[[Tensor, Tensor], LayerOutput]
"""A step on inputs [T, I] and targets [T, O]."""
WARM_UP_STEPS = 3
"""Steps before the recording, in which kernels are compiled and libraries choose their algorithms."""


class CudaRecorder:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def warm_up(self, work: Callable[[], LayerOutput]) -> LayerOutput:
        """Run the work on another stream than the default one, as a recording does."""
        stream, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            output = work()
        current.wait_stream(stream)
        return output

    def record(self, work: Callable[[], LayerOutput]) -> tuple[LayerOutput, Callable[[], None]]:
        """Record the work without running it. Returns where its results will be, and what runs it. Other threads, which
        compute activations, may allocate memory meanwhile."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        # The outer context restores the stream and the device if the inner one fails, which leaves its own.
        with (
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            output = work()
        return output, graph.replay


class CapturedStep:
    """Runs a step eagerly a few times, then records it, and from then on replays the recording.

    A step of another shape runs eagerly. So do all steps, with a warning, if the step cannot be recorded.
    """

    def __init__(self, step: Step, recorder: CudaRecorder) -> None:
        self._step, self._recorder = step, recorder
        self._warm_ups_left = WARM_UP_STEPS
        self._replay: Callable[[], None] | None = None

    def __call__(self, x_TI: Tensor, target_TO: Tensor) -> LayerOutput:
        """Take a step. Its output is overwritten by the next one."""
        if self._warm_ups_left > 0:
            self._warm_ups_left -= 1
            return self._recorder.warm_up(lambda: self._step(x_TI, target_TO))
        if self._replay is None and self._warm_ups_left == 0:
            self._record(x_TI, target_TO)
        if self._replay is None or (x_TI.shape, target_TO.shape) != (self._x_TI.shape, self._target_TO.shape):
            return self._step(x_TI, target_TO)
        self._x_TI.copy_(x_TI)
        self._target_TO.copy_(target_TO)
        self._replay()
        return self._output

    def _record(self, x_TI: Tensor, target_TO: Tensor) -> None:
        self._warm_ups_left = -1  # once, whatever comes of it
        self._x_TI, self._target_TO = x_TI.clone(), target_TO.clone()
        try:
            self._output, self._replay = self._recorder.record(lambda: self._step(self._x_TI, self._target_TO))
        except RuntimeError as error:
            warnings.warn(f"The step cannot be recorded, so its kernels are launched one by one: {error}", stacklevel=2)


Parallel = Literal["tokens", "experts", "runs"]
"""Division over the processes: of the tokens of every step, with averaged gradients; of the experts of every layer too;
or of the runs, each of which one process trains on whole steps."""

MAX_RANKED_EXPERTS = 8
"""Number of experts whose matrix ranks are measured during training."""


class TrainMetrics(NamedTuple):
    """Means over the steps since the last call of ``pop_metrics``."""

    normalized_mse: float
    l0: float
    """Number of active experts per token."""
    max_density: float
    dead_share: float


@dataclass
class _RunningSums:
    """Sums since the last call of ``pop_metrics``; tensors, so that no step waits for the device."""

    steps: int
    errors: Tensor
    l0: Tensor
    counts_N: Tensor


class Placement(NamedTuple):
    """Processes that train a layer, and how they share and launch its work."""

    group: ProcessGroup = SINGLE_PROCESS
    parallel: Parallel = "tokens"
    launch: Launch = "eager"


ONE_PROCESS = Placement()


OPTIMIZER_FILE = "optimizer.safetensors"
POSITION_FILE = "position.json"
LAST_ACTIVE = "last_active_N"


class Position(Config):
    """How far training is at a checkpoint."""

    step: int
    seconds: float
    """Training time over all resumptions."""
    text: TextPosition = TEXT_START
    """Position in the text at or before the next step's first sequence."""


@dataclass
class LayerTrainer:
    layer: SparseLayer
    optimizer: torch.optim.AdamW
    config: TrainConfig
    total_steps: int
    last_active_N: Tensor
    """Token count at each expert's last activation."""
    step: int = 0
    tokens: int = 0
    previous_seconds: float = 0.0
    """Training time before this process, in seconds."""
    text: TextPosition = TEXT_START
    """Position in the text at or before the next step's first sequence."""
    routing_share: float | None = None
    """``output_routing_share`` on the last step's tokens; None before, and if the experts are sharded."""
    group: ProcessGroup = SINGLE_PROCESS
    """Process group. Each process takes a shard of every step, and all hold the same weights."""
    metrics: _RunningSums = field(init=False)
    launch: Launch = "eager"

    def __post_init__(self) -> None:
        device = self.last_active_N.device
        counts_N = torch.zeros_like(self.last_active_N)
        self.metrics = _RunningSums(0, torch.zeros((), device=device), torch.zeros((), device=device), counts_N)
        self._averages: list[torch.distributed.Work] = []
        if not self.group.is_single:
            self._join()
        # Values that differ between steps, as tensors, because a recorded step reads it from memory.
        self._tokens_after = torch.zeros((), dtype=torch.int64, device=device)
        self._centre_weight = torch.zeros((), device=device, dtype=next(self.layer.parameters()).dtype)
        self._compute: Step = self._step_on_device
        if self.launch == "graph":
            self._check_recordable(device)
            self._compute = CapturedStep(self._step_on_device, CudaRecorder(device))

    @classmethod
    def create(
        cls,
        config: TrainConfig,
        language_model: LanguageModel,
        total_steps: int,
        placement: Placement = ONE_PROCESS,
        sample: MlpActivations | None = None,
    ) -> Self:
        """Trainer of a newly initialised layer. Its weights depend only on the config, not on the process group.

        Args:
            sample: activations of the text; required if ``needs_sample``.

        Raises:
            UserError: the settings need a single process, or the method has no such initialisation.
        """
        group, parallel, launch = placement
        check_processes(config, group.world_size)
        layer_config = build_layer_config(config, language_model.architecture)
        is_sharded = parallel == "experts" and not group.is_single
        shards = Shards(group.rank, group.world_size, layer_config.num_experts) if is_sharded else None
        with torch.random.fork_rng(devices=[]):  # by default it creates a context on every GPU of the machine
            torch.default_generator.manual_seed(config.seed)  # weights are sampled on the CPU for every device
            layer = build_layer(layer_config, shards)
        layer = layer.to(language_model.device_of(config.layer))
        if needs_sample(config):
            assert sample is not None
            initialize(layer, config, language_model, sample)
        trim_freed_memory()  # gaps that drawing the weights has left
        return cls.from_layer(layer, config, total_steps, group, launch)

    @classmethod
    def from_layer(
        cls,
        layer: SparseLayer,
        config: TrainConfig,
        total_steps: int,
        group: ProcessGroup = SINGLE_PROCESS,
        launch: Launch = "eager",
    ) -> Self:
        device = next(layer.parameters()).device
        # fused: one kernel per step. The learning rate is set before each step.
        rate = torch.zeros((), device=device) if launch == "graph" else 0.0
        optimizer = torch.optim.AdamW(
            layer.parameters(), lr=rate, weight_decay=0.0, fused=True, capturable=launch == "graph"
        )
        last_active_N = torch.zeros(layer.config.num_experts, dtype=torch.int64, device=device)
        return cls(layer, optimizer, config, total_steps, last_active_N, group=group, launch=launch)

    def _check_recordable(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise UserError(f"Only steps on NVIDIA and AMD GPUs can be recorded, not on {device}. Use --launch=eager.")
        if self.config.regularization.k_spread or not self.group.is_single:
            raise UserError("Steps with --k-spread or of several processes cannot be recorded. Use --launch=eager.")

    def train_step(self, batch: MlpActivations) -> LayerOutput:
        # The activations of a cache are on one device, the layers of a dispatched language model on several.
        batch = MlpActivations(*(values.to(self.last_active_N.device) for values in batch))
        x_TI, target_TO = batch.inputs_for(self.layer), batch.output_TO
        with matmul_precision("high" if self.config.optimizer.matmul_precision == "high" else "highest"):
            if self.step == 0 and not needs_sample(self.config):
                # D starts at zero, so the first output is b_out alone. The mean is the best constant.
                self.layer.get_parameter("output_bias").data.copy_(self.group.mean_(target_TO.mean(dim=0)))
            self._begin_step(len(x_TI))
            output = self._compute(x_TI, target_TO)
            self._end_step()
            if self.step == self.total_steps and self.layer.shards is None:
                self.routing_share = output_routing_share(self.layer, x_TI, target_TO)
        return output

    def _begin_step(self, tokens: int) -> None:
        rate = learning_rate(self.config.optimizer, self.step, self.total_steps)
        for parameters in self.optimizer.param_groups:
            if isinstance(parameters["lr"], Tensor):
                parameters["lr"].fill_(rate)
            else:
                parameters["lr"] = rate
        self._tokens_after.fill_(self.tokens + tokens * self.group.world_size)
        self._centre_weight.fill_(centre_weight(self.step))
        self._step_tokens = tokens * self.group.world_size

    def _step_on_device(self, x_TI: Tensor, target_TO: Tensor) -> LayerOutput:
        """All work of a step on tensors; nothing that it reads from Python differs between steps."""
        precision = self.config.optimizer.matmul_precision if self.layer.shards is None else "highest"
        dtype = product_dtype(precision, x_TI.device, self.layer.config.input_width)
        with self.own_centre(), products_in(dtype, x_TI.device):
            if self.config.min_k is None:
                output: LayerOutput = self.layer(x_TI, sample_k(self.config, self.layer.config.k, self.step))
                outputs: tuple[Tensor, ...] = (output.output_TO,)
            else:  # one output per number of experts, K last
                ks = nested_ks(self.layer.config.k, self.config.min_k)
                output, outputs = nested_outputs(self.layer, x_TI, ks)
            errors = torch.stack([normalized_mse(output_TO, target_TO) for output_TO in outputs])
        auxiliary = self.auxiliary_loss(output, target_TO)
        (errors.mean() if auxiliary is None else errors.mean() + auxiliary).backward()
        while self._averages:
            self._averages.pop().wait()
        self._update(output.routing, errors[-1].detach())
        # Gradients are freed: on a CPU, those of the next step may not fit into the gaps that they leave. Processes
        # that share a machine return the pages, which costs an eighth of a step.
        for parameter in () if self.group.is_single else self.layer.parameters():
            if parameter.grad is not None:
                release_pages(parameter.grad)
        self.optimizer.zero_grad()
        self._follow(output.mixing_TM)
        return output

    def _end_step(self) -> None:
        self.step += 1
        self.tokens += self._step_tokens
        self.metrics.steps += 1

    @property
    def dead_after_tokens(self) -> int:
        """Number of latest tokens without an activation after which an expert counts as dead."""
        return min(DEAD_AFTER_TOKENS, self.tokens)

    def auxiliary_loss(self, output: LayerOutput, _target_TO: Tensor) -> Tensor | None:
        """Weighted sum of all loss terms except the reconstruction error; None if there are none."""
        weight = self.config.regularization.load_balance_weight
        return weight * load_imbalance(output.routing, self.layer.config.num_experts) if weight else None

    def apply_gradients(self, routing: Routing, mixing_TM: Tensor, error: Tensor) -> None:
        """Take an optimizer step at the scheduled learning rate; update the running centre and the metrics, from the
        normalised MSE of the layer on this process's tokens."""
        self._begin_step(len(routing.indices_TK))
        self._update(routing, error)
        self._follow(mixing_TM)
        self._end_step()

    def _update(self, routing: Routing, error: Tensor) -> None:
        self.optimizer.step()
        counts_N = active_counts(routing, self.layer.config.num_experts)
        self.last_active_N.masked_fill_(counts_N > 0, self._tokens_after)
        self.metrics.errors += error
        self.metrics.l0 += (routing.activations_TK > 0).sum(dim=1).float().mean()
        self.metrics.counts_N += counts_N

    @contextmanager
    def own_centre(self) -> Iterator[None]:
        """Let a layer with centred mixing subtract the own centre of each batch that it reads."""
        if not isinstance(self.layer, MxD):
            yield
            return
        self.layer.average = self.group.average
        try:
            yield
        finally:
            self.layer.average = None

    def _follow(self, mixing_TM: Tensor) -> None:
        if isinstance(self.layer, MxD):
            self.layer.follow(mixing_TM, self._centre_weight, self.group.average)

    def pop_metrics(self) -> TrainMetrics:
        """Means over all processes and the steps since the last call. Collective."""
        sums = copy.deepcopy(self.metrics)
        self.metrics.steps = 0  # they start at zero again in the same memory
        for tensor in (self.metrics.errors, self.metrics.l0, self.metrics.counts_N):
            tensor.zero_()
        for mean in (sums.errors, sums.l0):
            self.group.mean_(mean)
        self.group.sum_(sums.counts_N)
        self.group.max_(self.last_active_N)
        tokens = sums.steps * (self.tokens // max(self.step, 1))
        is_dead_N = self.tokens - self.last_active_N >= self.dead_after_tokens
        return TrainMetrics(
            normalized_mse=sums.errors.item() / max(sums.steps, 1),
            l0=sums.l0.item() / max(sums.steps, 1),
            max_density=sums.counts_N.max().item() / max(tokens, 1),
            dead_share=is_dead_N.float().mean().item(),
        )

    def expert_ranks(self) -> ExpertRanks | None:
        if not isinstance(self.layer, MxD) or self.layer.shards is not None:
            return None
        count = self.layer.config.num_experts
        return measure_ranks(self.layer, range(0, count, -(-count // MAX_RANKED_EXPERTS)))

    def save(self, folder: Path, seconds: float) -> None:
        """Write a checkpoint into the run folder, from which training resumes exactly. Collective.

        A checkpoint is a folder that is written atomically, without pickle. The previous one is kept, in case the disk
        damages the newest. The main process writes everything but the rows of sharded experts and their moments, which
        each process writes itself. Any number of processes can resume the run.
        """
        group, layer = self.group, self.layer
        group.max_(self.last_active_N)
        if layer.shards is None and not group.is_main:
            return
        target = folder / f"{CHECKPOINT_PREFIX}{self.step}"
        partial = partial_folder(target)
        moments = {
            f"{name}/{key}": value.contiguous()
            for name, parameter in layer.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        tensors = {LAST_ACTIVE: self.last_active_N, **moments}
        with atomic_directory(target) if group.is_main else disk_errors(target):
            if layer.shards is None:
                layer.save(partial)
                save_tensors(tensors, partial / OPTIMIZER_FILE)
            else:
                group.barrier()  # the folder exists
                layer.save(partial)
                save_part(tensors, _table_moments(layer), layer.shards, partial / OPTIMIZER_FILE)
                group.barrier()  # all parts exist
            if not group.is_main:
                return
            position = Position(step=self.step, seconds=seconds, text=self.text)
            (partial / POSITION_FILE).write_text(position.model_dump_json())
        # A checkpoint of a later step is damaged: training was resumed from an earlier one.
        previous = [path for path in checkpoints(folder) if step_of(path) < self.step][:1]
        for checkpoint in checkpoints(folder):
            if checkpoint not in (target, *previous):
                shutil.rmtree(checkpoint)

    def _join(self) -> None:
        """Take over the main process's weights, and average each gradient as soon as it is complete. Unlike
        DistributedDataParallel, this needs no second copy of all gradients."""

        def divide(parameter: Tensor) -> None:
            # The gradient of a sharded table is already summed over all tokens.
            assert parameter.grad is not None
            parameter.grad /= self.group.world_size

        def begin_average(parameter: Tensor) -> None:
            divide(parameter)  # the sum over the processes follows while the backward pass continues
            self._averages.append(torch.distributed.all_reduce(parameter.grad, async_op=True))

        own = self.layer.expert_tables if self.layer.shards is not None else ()
        for name, tensor in self.layer.state_dict().items():
            if name not in own:
                torch.distributed.broadcast(tensor, 0)
        for name, parameter in self.layer.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(divide if name in own else begin_average)

    def restore(self, checkpoint: Path, batch_tokens: int) -> None:
        """Load a checkpoint whose steps took ``batch_tokens`` tokens each. A process that holds some experts reads only
        their rows. Raises UserError if a file is damaged or missing."""
        layer = self.layer
        rows = slice(None) if layer.shards is None else layer.shards.rows(layer.shards.rank)
        weights = read_weights(checkpoint / WEIGHTS_FILE, layer, layer.expert_tables, rows)
        message = f"Damaged checkpoint: {checkpoint} ({{error}}). Delete it and train the run again."
        with explained(message, SafetensorError, OSError, KeyError, TypeError, ValueError):
            tensors = read_rows(checkpoint / OPTIMIZER_FILE, _table_moments(layer), rows)
            position = Position.model_validate(read_json(checkpoint / POSITION_FILE))
            last_active_N = tensors.pop(LAST_ACTIVE)
            if last_active_N.shape != self.last_active_N.shape:
                raise ValueError(f"{LAST_ACTIVE} has another shape")
            layer.load_state_dict(weights)
            parameters = {name: (index, value.shape) for index, (name, value) in enumerate(layer.named_parameters())}
            state: dict[int, dict[str, Tensor]] = {}
            for full_name, value in tensors.items():
                name, key = full_name.rsplit("/", 1)
                index, shape = parameters[name]
                if value.dim() and value.shape != shape:
                    raise ValueError(f"{full_name} has another shape")
                state.setdefault(index, {})[key] = value
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.last_active_N.copy_(last_active_N)
        self.step, self.tokens = position.step, position.step * batch_tokens
        self.previous_seconds, self.text = position.seconds, position.text


def _table_moments(layer: SparseLayer) -> list[str]:
    return [f"{name}/{moment}" for name in layer.expert_tables for moment in ("exp_avg", "exp_avg_sq")]


def nested_ks(k: int, smallest: int) -> tuple[int, ...]:
    """Numbers of experts to train jointly, ascending: the smallest, and K, K/2, K/4 … above it."""
    sizes = [k]
    while sizes[-1] // 2 > smallest:
        sizes.append(sizes[-1] // 2)
    return tuple(sorted({smallest, *sizes}))


def nested_outputs(layer: SparseLayer, x_TI: Tensor, ks: tuple[int, ...]) -> tuple[LayerOutput, tuple[Tensor, ...]]:
    """Output with all K experts, and the output [T, O] for each number of experts; ``ks`` ascend to K."""
    dense_TM = layer.dense_output(x_TI)
    routing = layer.route(x_TI)
    parts = [
        layer.mixing(Routing(*(values[:, first:end].contiguous() for values in routing)))
        for first, end in pairwise((0, *ks))
    ]
    mixings = torch.stack(parts).cumsum(dim=0)
    outputs = tuple(layer.decode_mixed(dense_TM, mixing_TM) for mixing_TM in mixings)
    return LayerOutput(outputs[-1], routing, dense_TM, mixings[-1]), outputs


def load_imbalance(routing: Routing, num_experts: int) -> Tensor:
    """Load-balancing loss of Switch Transformers (arXiv 2101.03961), computed on gate activations. N times the sum over
    experts of their share of activations times their share of summed gate activations: 1 if all experts are used
    equally, N if one expert does everything."""
    ids = routing.indices_TK.reshape(-1)
    activations = routing.activations_TK.reshape(-1)
    counts_N = active_counts(routing, num_experts).to(activations)
    sums_N = activations.new_zeros(num_experts).index_add(0, ids, activations)
    shares_N = counts_N / counts_N.sum().clamp_min(1)
    return num_experts * (shares_N * (sums_N / sums_N.sum().clamp_min(1e-12))).sum()


def sample_k(config: TrainConfig, k: int, step: int) -> int:
    """K of a step, uniform within the spread around ``k``; depends only on the seed and the step."""
    spread = round(k * config.regularization.k_spread)
    if spread == 0:
        return k
    generator = np.random.default_rng([config.seed, step])
    return int(generator.integers(max(1, k - spread), k + spread + 1))


def learning_rate(schedule: OptimizerConfig, step: int, total: int) -> float:
    """Learning rate of a step: linear warm-up, constant, linear decay to zero."""
    assert schedule.learning_rate is not None  # stored by the config of the run
    rise = (step + 1) / max(1.0, schedule.warmup_ratio * total)
    fall = (total - step) / max(1.0, schedule.decay_ratio * total)
    return schedule.learning_rate * min(1.0, rise, fall)


def check_processes(config: TrainConfig, processes: int) -> None:
    """Check that several processes train the layer that one would. Raises UserError if they would train another one."""
    if processes == 1:
        return
    if method_traits(config.method).trains_on_whole_steps:
        raise UserError(
            f"A {config.method} needs a single process: its thresholds depend on all tokens of a step. Use "
            "--parallel=runs, run without torchrun, or use --method=mxd."
        )
    if config.regularization != RegularizationConfig():
        raise UserError("Regularisation needs a single process. Use --parallel=runs, or run without torchrun.")
    if config.min_k is not None:
        raise UserError("--min-k needs a single process. Use --parallel=runs, or run without torchrun.")


def build_layer_config(config: TrainConfig, architecture: Architecture) -> LayerConfig:
    """Layer settings of a run, with the widths of the MLP that the layer replaces. Raises UserError if settings
    contradict each other, or the model has no such layer or no embedding of a position."""
    _check_settings(config)
    architecture.check_context_length(config.text.context_length)
    shape, traits = architecture.mlp_shape(config.layer), method_traits(config.method)
    layer_config = LayerConfig(
        method=config.method,
        input_width=shape.output_width if config.method == "autoencoder" else shape.input_width,
        hidden_width=shape.hidden_width,
        output_width=shape.output_width,
        num_experts=config.num_experts or 1,
        k=config.k,
        activation=shape.activation,
        encoder=shape.encoder,
        rank=traits.rank and (config.rank or traits.rank.default(shape.output_width)),
        mixing=traits.mixing if config.mixing == "auto" else config.mixing,
        min_k=config.min_k,
    )
    num_experts = config.num_experts or matched_num_experts(layer_config, shape.input_width)
    layer_config = layer_config.model_copy(update={"num_experts": num_experts})
    with torch.device("meta"):
        layer = build_layer(layer_config)
    has_rows = isinstance(layer.table, nn.Parameter) and (layer.mixes_outputs or traits.mixes_hidden)
    if needs_sample(config) and not has_rows:
        raise UserError(f"A {layer.method} cannot be initialised from examples. Use --init=random.")
    return layer_config


def _check_settings(config: TrainConfig) -> None:
    method, traits = config.method, method_traits(config.method)
    if config.rank is not None and traits.rank is None:
        raise UserError(f"A {method} has no rank. Omit --rank.")
    if config.mixing == "centred" and traits.mixing != "centred":
        raise UserError(f"A {method} has no centred mixing. Omit --mixing, or use --method=mxd.")
    if config.min_k is not None and not traits.has_top_k:
        raise UserError(f"A {method} has no top-k, so K cannot be reduced. Omit --min-k, or choose another --method.")
    if config.regularization.k_spread and not traits.has_top_k:
        raise UserError(
            f"A {method} has no top-k, so K cannot be sampled. Omit --k-spread, or choose another --method."
        )
    if config.min_k is not None and config.min_k > config.k:
        raise UserError(f"min_k={config.min_k} exceeds k={config.k}. Lower --min-k.")
    if config.min_k is not None and config.regularization.k_spread:
        raise UserError("--min-k and --k-spread exclude each other. Omit one of them.")
