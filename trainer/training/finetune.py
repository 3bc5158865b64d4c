"""Joint fine-tuning of several runs into new runs. The parent runs are not changed.

Each new run has its own checkpoints. Resumed, all runs continue from the newest step that all of them have saved.

Shapes: B sequences, T tokens, V vocabulary, I input width, O output width.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from sqlalchemy import Engine
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.config.layer import method_traits
from mxd.trainer.config.training import FinetuneConfig, RegularizationConfig, TrainConfig
from mxd.trainer.data.activations import BatchPlan
from mxd.trainer.data.sequences import TextProgress, check_text_length, sequence_batches
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.mlp_hooks import Mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import Routing, normalized_mse
from mxd.trainer.layers.variants import load_layer
from mxd.trainer.storage.run import LOCK_FILE, Run, checkpoints, runs_folder, step_of
from mxd.trainer.storage.run_sets import check_compatible_runs, names_of
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.precision import matmul_precision, with_dtype
from mxd.trainer.training.rates import free_bytes
from mxd.trainer.training.train import Resume, TrainingRun, TrainResult, check_resumable, no_log
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.files import exclusive_lock

MICROBATCH_SEQUENCES = 8
"""Most sequences per forward and backward pass. Gradients are accumulated over a step. Where memory allows fewer, the
centre that centred mixing subtracts is of fewer tokens, so the result is not quite the same."""
LOGIT_TENSORS = 6
"""Tensors of the size of the logits that a pass holds at once: both models' logits and their derivatives."""
LOGIT_SHARE = 0.5
"""Share of the free memory for them."""


class JointTrainer:
    """Trains several layers end to end, each with its own optimizer.

    Centred mixing subtracts the own centre of each pass, as in training; the stored one follows all tokens of a step.
    """

    def __init__(self, language_model: LanguageModel, trainers: Sequence[LayerTrainer]) -> None:
        self.language_model = language_model
        self.trainers = {trainer.config.layer: trainer for trainer in trainers}
        self._free_bytes = free_bytes(language_model.device)
        self._outcomes: dict[int, list[tuple[Routing, Tensor, Tensor]]] = {}
        """Layer -> routing, mixing, and normalised MSE times the share of the step, of each microbatch."""

    def train_step(self, ids_BT: Tensor) -> Tensor:
        """Take a step. Returns the mean KL divergence between the next-token distributions of the original model and of
        the model with all layers, in nats."""
        for trainer in self.trainers.values():
            trainer.optimizer.zero_grad()
        self._outcomes = {layer: [] for layer in self.trainers}
        parts = ids_BT.split(self._sequences_per_pass(ids_BT.shape[1]))
        losses = [self._backward(part, len(part) / len(ids_BT)) for part in parts]
        for layer, trainer in self.trainers.items():
            routings, mixings, errors = zip(*self._outcomes[layer], strict=True)
            routing = Routing(*map(torch.cat, zip(*routings, strict=True)))
            trainer.apply_gradients(routing, torch.cat(mixings), torch.stack(errors).sum())
        return torch.stack(losses).sum()

    def _sequences_per_pass(self, length: int) -> int:
        """Number of sequences of ``length`` tokens whose logits fit into memory."""
        bytes_each: int = LOGIT_TENSORS * 4 * length * self.language_model.config.vocab_size
        fitting = int(LOGIT_SHARE * self._free_bytes) // bytes_each
        if fitting == 0:
            raise UserError(
                f"Fine-tuning needs {bytes_each / LOGIT_SHARE / 1e9:.1f} GB of free memory for sequences of {length:,} "
                f"tokens, but {self._free_bytes / 1e9:.1f} GB are free. Lower --context-length."
            )
        return min(MICROBATCH_SEQUENCES, fitting)

    def _backward(self, ids_BT: Tensor, share: float) -> Tensor:
        """Accumulate the gradients of a microbatch. Returns its loss, weighted by its share of the step."""
        original_BTV = self.language_model.logits(ids_BT).log_softmax(-1)
        replacements = {layer: partial(self._forward, layer, share) for layer in self.trainers}
        with ExitStack() as centres, self.language_model.replace_mlps(replacements), torch.enable_grad():
            for trainer in self.trainers.values():
                centres.enter_context(trainer.own_centre())
            residual_BTW = self.language_model.residual(ids_BT)
            logits_PV = self.language_model.unembed(residual_BTW.flatten(0, 1))
            replaced_BTV = logits_PV.unflatten(0, ids_BT.shape).log_softmax(-1)
            kl = F.kl_div(replaced_BTV, original_BTV, reduction="none", log_target=True).sum(-1).mean()
            (share * kl).backward()
        return share * kl.detach()

    def _forward(self, layer: int, share: float, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output of a layer in place of its MLP; also records its routing and its error against the MLP."""
        sparse_layer = self.trainers[layer].layer
        reads_output = sparse_layer.reads == "mlp-output"
        with torch.set_grad_enabled(reads_output):
            target_TO = mlp().flatten(0, 1).float()
        output = sparse_layer(target_TO if reads_output else x_BTI.flatten(0, 1).float())
        error = share * normalized_mse(output.output_TO.detach(), target_TO.detach())
        routing = Routing(*(values.detach() for values in output.routing))
        self._outcomes[layer].append((routing, output.mixing_TM.detach(), error))
        output_BTO: Tensor = output.output_TO.to(x_BTI.dtype).unflatten(0, x_BTI.shape[:-1])
        return output_BTO


@dataclass(frozen=True)
class FinetuneResult:
    """Result of joint fine-tuning."""

    runs: tuple[TrainResult, ...]
    kl_first: float | None
    """KL divergence in nats at the first step of this process, before its update; None if no step was left."""
    kl_last: float | None
    """Mean KL divergence in nats over the last ``log_every`` steps or fewer."""


def finetune(
    runs: Sequence[Run],
    config: FinetuneConfig,
    data: Path,
    database: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    callbacks: Callbacks = NO_CALLBACKS,
) -> FinetuneResult:
    """Fine-tune runs of different layers jointly, until all tokens are used or the task is cancelled.

    Raises:
        DivergedError: a run has diverged.
        UserError: the runs cannot be fine-tuned jointly, a new run exists (and ``resume`` is ``never``), another
            process is training it, it was started with other settings, or the text is too short.
    """
    runs = sorted(runs, key=lambda run: run.config.layer)
    configs = [with_dtype(new_config, language_model.dtype) for new_config in new_run_configs(runs, config)]
    check_text_length(config.text, language_model.tokenizer, BatchPlan.from_config(configs[0]).tokens)
    with ExitStack() as locks:
        folders = [runs_folder(data) / new_config.name for new_config in configs]
        for new_config, folder in zip(configs, folders, strict=True):
            locks.enter_context(exclusive_lock(folder / LOCK_FILE, f"Run '{new_config.name}' is being trained"))
            check_resumable(new_config, data, resume)
        # Checkpoints that not all runs have: a killed process may have written only some of them.
        by_step = [{step_of(path): path for path in checkpoints(folder)} for folder in folders]
        common = set.intersection(*(set(paths) for paths in by_step))
        for path in (paths[step] for paths in by_step for step in paths.keys() - common):
            shutil.rmtree(path)
        trainers = [trainer_from_run(*pair, language_model) for pair in zip(runs, configs, strict=True)]
        new_runs = [TrainingRun.open(trainer, data, database, language_model, no_log) for trainer in trainers]
        try:
            steps = {run.run.name: run.trainer.step for run in new_runs}
            if len(set(steps.values())) > 1:
                raise UserError(
                    f"A checkpoint of '{min(steps, key=steps.__getitem__)}' is damaged, and the other runs are at a "
                    f"later step. Remove {', '.join(steps)} with 'mxd remove', then fine-tune again."
                )
            losses = _train(new_runs, config, language_model, callbacks)
            results = tuple(run.close() for run in new_runs)
        except UserError as error:
            for run in new_runs:
                run.set_status("failed", str(error))
            raise
    last = losses[-config.log_every :]
    return FinetuneResult(results, losses[0] if losses else None, sum(last) / len(last) if last else None)


def new_run_configs(runs: Sequence[Run], config: FinetuneConfig) -> list[TrainConfig]:
    """Configs of the new runs, in the order of ``runs``. Raises UserError if two runs replace the same layer or two new
    runs have the same name, the runs have different models, or a run cannot be trained."""
    check_compatible_runs(runs)
    for run in runs:
        if method_traits(run.config.method).status == "imported":
            raise UserError(
                f"Run '{run.name}' is an imported {run.config.method}, which cannot be trained. Leave it out."
            )
    configs = []
    for run, name in zip(runs, names_of(runs, config.name), strict=True):
        # Not the settings of experiments: training can undo what they did.
        inherited = run.config.model_dump(include=TrainConfig.model_fields.keys() - {"language_model_dtype", "origin"})
        changed = {
            "name": name,
            "language_model": run.language_model_source,
            "num_experts": run.layer_config.num_experts,
            "regularization": RegularizationConfig(),
            "parents": (run.name, *(other.name for other in runs if other is not run)),
            "data_seed": None if config.seed == run.config.seed else config.seed,
            **config.model_dump(exclude={"name", "seed"}),
        }
        configs.append(TrainConfig.model_validate(inherited | changed))
    return configs


def trainer_from_run(run: Run, config: TrainConfig, language_model: LanguageModel) -> LayerTrainer:
    layer = load_layer(run.weights_folder).to(language_model.device_of(config.layer))
    return LayerTrainer.from_layer(layer, config, BatchPlan.from_config(config).steps)


def _train(
    runs: Sequence[TrainingRun], config: FinetuneConfig, language_model: LanguageModel, callbacks: Callbacks
) -> list[float]:
    """Take the remaining steps. Returns the KL divergence at each, in nats."""
    joint = JointTrainer(language_model, [run.trainer for run in runs])
    first, plan = runs[0].trainer, runs[0].plan
    divergences: list[float] = []
    progress = TextProgress(first.text)
    # Closed here, because garbage collection might close it in the thread that it would have to join.
    with closing(
        sequence_batches(
            config.text,
            language_model.tokenizer,
            plan.tokens,
            first.config.order_seed,
            "shuffled",
            plan.sequences,
            skip=first.step * plan.sequences,
            progress=progress,
        )
    ) as batches:
        for ids_BT in batches:
            if callbacks.is_cancelled():
                break
            with matmul_precision(config.optimizer.matmul_precision):
                divergences.append(joint.train_step(torch.from_numpy(ids_BT)).item())
            for run in runs:
                run.trainer.text = progress.position
                run.log_if_due()
            callbacks.on_progress(first.tokens, plan.tokens, f"KL {divergences[-1]:.4f} nats")
            if all(run.needs_checkpoint for run in runs):  # together, because only common checkpoints are resumed
                for run in runs:
                    run.save()
    return divergences
