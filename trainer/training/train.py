"""The training loop: activations in, run folders and metrics out.

Runs with the same text in the same order train on one pass over it, whatever their method, K, N, seed or layer. Each
keeps its own checkpoints. After an interruption, runs that are behind catch up, and each ends as if trained alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from sqlalchemy import Engine

from mxd.trainer.config import TrainConfig
from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.data.activations import BufferSource, LiveActivations, StreamSpec, batches
from mxd.trainer.data.sequences import check_text_length
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.storage.run import LOCK_FILE, resume_command, runs_folder
from mxd.trainer.training.captured_step import Launch
from mxd.trainer.training.initialization import needs_sample
from mxd.trainer.training.layer_trainer import Experts, LayerTrainer, build_layer_config
from mxd.trainer.training.loggers import OpenLog, no_log
from mxd.trainer.training.matmul_precision import is_in_tf32, matmul_precision
from mxd.trainer.training.planning.dtypes import with_dtype
from mxd.trainer.training.training_run import (
    DivergedError,
    Resume,
    TrainingRun,
    TrainResult,
    check_resumable,
    resolve_batch,
    resolve_precision,
)
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import exclusive_lock

__all__ = ["Resume", "TrainResult", "train_layer", "train_layers"]


def train_layer(
    config: TrainConfig,
    data: Path,
    database: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    log: OpenLog = no_log,
    cache: ActivationCache | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> TrainResult:
    """Train one layer, or resume it, until all tokens are used or the task is cancelled.

    Raises:
        UserError: the run exists (and ``resume`` is ``never``), another process is training it, it was started with
            other settings, or the text is too short.
    """
    (result,) = train_layers(
        [config], data, database, language_model, resume=resume, log=log, cache=cache, callbacks=callbacks
    )
    return result


def train_layers(
    configs: Sequence[TrainConfig],
    data: Path,
    database: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    group: ProcessGroup = SINGLE_PROCESS,
    experts: Experts = "replicated",
    launch: Launch = "eager",
    log: OpenLog = no_log,
    cache: ActivationCache | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    trainer_class: type[LayerTrainer] = LayerTrainer,
) -> list[TrainResult]:
    """Train several layers on one pass over the activations. Results are in the order of ``configs``.

    The processes of a group share every step and end with the weights of a single process, up to rounding. All of them
    must be able to read the data folder; only the main process writes to it, to the database and to ``log``. With a
    ``cache``, activations are read from it, and the language model only gives its shapes and its weights.

    Raises:
        DivergedError: a run has diverged. The others are saved and can be resumed without it.
        UserError: as ``train_layer``; or the runs need different batches, two have the same name, or the cache does not
            have the runs' batches.
    """
    _check_unique_names(configs)
    _check_configs(configs, language_model)
    configs = [
        resolve_batch(with_dtype(config, language_model.dtype), data, language_model.device) for config in configs
    ]
    configs = [resolve_precision(config, data, language_model) for config in configs]
    stream = StreamSpec.from_configs(configs)
    stream.plan.shard(group)
    # Build all layers before creating the first folder, so that errors leave nothing behind.
    source = _source(stream, language_model, cache)
    # Complete, not a shard, because every process initialises the same weights.
    first_buffer = next(source.buffers(stream)) if any(map(needs_sample, configs)) else None
    trainers = [
        trainer_class.create(
            config,
            language_model,
            stream.plan.steps,
            group,
            experts,
            first_buffer.captured[config.layer] if first_buffer else None,
            launch,
        )
        for config in configs
    ]
    with _locked(configs if group.is_main else (), data):
        runs = _open_runs(trainers, data, database, language_model, resume, log if group.is_main else no_log)
        try:
            first_step = min(run.trainer.step for run in runs)
            own_buffer = first_buffer if group.is_single else None
            # Closed here, because garbage collection might close it in the thread that it would have to join.
            # TF32 is a setting of the whole process, and another thread computes the next buffer meanwhile.
            with (
                matmul_precision("high" if any(is_in_tf32(config) for config in configs) else "highest"),
                closing(batches(source, stream, first_step, group, own_buffer)) as stream_batches,
            ):
                del first_buffer, own_buffer  # so that their memory is freed once the tokens are used
                _train(runs, enumerate(stream_batches, start=first_step), stream, group, callbacks)
            return [run.close() for run in runs]
        except UserError as error:
            _close_failed(error, runs)
            raise


@contextmanager
def _locked(configs: Sequence[TrainConfig], data: Path) -> Iterator[None]:
    """Keep other processes from training the runs."""
    with ExitStack() as locks:
        for config in configs:
            lock = runs_folder(data) / config.name / LOCK_FILE
            locks.enter_context(exclusive_lock(lock, f"Run '{config.name}' is being trained"))
        yield


def _source(stream: StreamSpec, language_model: LanguageModel, cache: ActivationCache | None) -> BufferSource:
    """Source of the activations. A text or cache that is too short raises an error here."""
    if cache is None:
        check_text_length(stream.text, language_model.tokenizer, stream.plan.tokens)
        return LiveActivations(language_model)
    cache.check(stream)
    return cache


def _open_runs(
    trainers: Sequence[LayerTrainer],
    data: Path,
    database: Engine,
    language_model: LanguageModel,
    resume: Resume,
    log: OpenLog,
) -> list[TrainingRun]:
    """Open the runs of all trainers; the main process creates their folders."""
    group = trainers[0].group
    for trainer in trainers:
        check_resumable(trainer.config, data, resume)
    group.barrier()  # all processes have checked before a folder is created
    if not group.is_main:
        group.barrier()  # the main process has created the folders
    runs = [TrainingRun.open(trainer, data, database, language_model, log) for trainer in trainers]
    if group.is_main:
        group.barrier()
    return runs


def _train(
    runs: Sequence[TrainingRun],
    numbered_batches: Iterable[tuple[int, Mapping[int, MlpActivations]]],
    stream: StreamSpec,
    group: ProcessGroup,
    callbacks: Callbacks,
) -> None:
    """Take the remaining steps. Runs that are ahead skip the batches that they have used."""
    for step, batch in numbered_batches:
        due = [run for run in runs if run.trainer.step == step]
        for run in due:
            run.train_step(batch[run.trainer.config.layer])
        callbacks.on_progress((step + 1) * stream.plan.batch_tokens, stream.plan.tokens, _note(runs))
        if group.any(callbacks.is_cancelled()):
            return
        for run in due:
            if run.needs_checkpoint:
                run.save()


def _close_failed(error: UserError, runs: Sequence[TrainingRun]) -> None:
    """Mark the runs as failed. If one has diverged, only that one fails, and the others are saved."""
    for run in runs:
        try:
            if not isinstance(error, DivergedError) or run.run.name == error.run:
                raise error
            run.close()
        except UserError as own_error:
            run.set_status("failed", str(own_error))


def _note(runs: Sequence[TrainingRun]) -> str:
    errors = [run.last.normalized_mse for run in runs if not math.isnan(run.last.normalized_mse)]
    if not errors:
        return ""
    if len(runs) == 1:
        return f"normalised MSE {errors[0]:.4f}"
    return f"normalised MSE {min(errors):.4f} to {max(errors):.4f}"


def _check_configs(configs: Sequence[TrainConfig], language_model: LanguageModel) -> None:
    for config in configs:
        build_layer_config(config, language_model.architecture)
        if config.parents:
            command = resume_command(config.name, config.parents)
            raise UserError(f"Run '{config.name}' is fine-tuned jointly with other layers. Resume it with: {command}")


def _check_unique_names(configs: Sequence[TrainConfig]) -> None:
    (name, count), *_ = Counter(config.name for config in configs).most_common(1)
    if count > 1:
        raise UserError(f"{count} runs have the name '{name}'. Give each its own name.")
