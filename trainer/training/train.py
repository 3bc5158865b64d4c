"""The training loop: activations in, run folders and metrics out.

Runs with the same text in the same order train on one pass over it, whatever their method, K, N, seed or layer. Each
keeps its own checkpoints. After an interruption, runs that are behind catch up, and each ends as if trained alone.
Several processes share every step, or each trains some of the runs on the activations of all processes.
"""

import json
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Self

import torch
from sqlalchemy import Engine, delete
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from mxd.trainer.config.layer import CONFIG_FILE, WEIGHTS_FILE
from mxd.trainer.config.training import GPU_BATCH, TrainConfig
from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.data.activations import BatchPlan, LiveActivations, StreamSpec, batches
from mxd.trainer.data.sequences import TEXT_START, TextProgress, check_text_length
from mxd.trainer.errors import UserError, WriterLostError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.tensor_files import join_parts
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord, utc_now
from mxd.trainer.storage.run import LOCK_FILE, METRICS_FILE, RUN_FILE, Run, checkpoints, resume_command, runs_folder
from mxd.trainer.storage.run_records import enter, metrics_of
from mxd.trainer.training.initialization import needs_sample
from mxd.trainer.training.layer_trainer import (
    Launch,
    LayerTrainer,
    Parallel,
    Placement,
    TrainMetrics,
    build_layer_config,
)
from mxd.trainer.training.precision import matmul_precision, resolved_precision, with_dtype
from mxd.trainer.training.rates import LayerSizes, spread
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.distributed import SINGLE_PROCESS, ProcessGroup
from mxd.trainer.utils.files import atomic_directory, atomic_write, exclusive_lock, explained
from mxd.trainer.utils.memory import trim_freed_memory

Resume = Literal["never", "if-any"]
LARGEST_SHARE = 0.05
"""Largest share of the training time for checkpoints, and for expert ranks."""
QUICK_SECONDS = 0.5
"""Duration up to which either may be as frequent as the settings say."""


@dataclass(frozen=True)
class TrainResult:
    run: str
    status: Literal["finished", "stopped"]
    tokens: int
    normalized_mse: float
    """0 is a perfect layer; 1 is the score of predicting zero."""
    dead_share: float
    """Share of experts that were active on none of the last ``dead_after_tokens`` tokens."""
    dead_after_tokens: int
    routing_share: float | None
    """Routing share, measured on the outputs instead of the loss, on the last step's tokens; None if not measured: the
    run was stopped or its experts are sharded."""
    step_tokens: int
    """Number of tokens of a step."""
    tokens_per_second: float
    """Throughput of the pass over the text, which runs trained together share."""


LogName = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "mxd-explorer"
FOLDER = "tensorboard"
"""Folder of the event files, in the run's."""


@dataclass(frozen=True)
class MetricLog:
    write: Callable[[int, Mapping[str, float]], object]
    """Logs the metrics of a step, in the units of ``mxd.trainer.storage.database.tables.MetricRecord``."""
    close: Callable[[], object]


OpenLog = Callable[[TrainConfig, Path, int], MetricLog]
"""Opens the log of a run in its folder. The number is the step from which the run resumes; 0 for a new run."""


def no_log(_config: TrainConfig, _folder: Path, _step: int) -> MetricLog:
    """Open no log: the metrics are only in the database."""
    return MetricLog(write=lambda _step, _metrics: None, close=lambda: None)


def _open_tensorboard(config: TrainConfig, folder: Path, step: int) -> MetricLog:
    """Open event files in the run's folder; ``tensorboard --logdir data/runs`` shows all runs. Events after ``step``
    are purged, because their steps will be repeated."""
    from torch.utils.tensorboard.writer import SummaryWriter

    writer = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
    if step == 0:
        writer.add_text("settings", f"```json\n{config.model_dump_json(indent=1)}\n```")

    def write(step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(f"train/{name}", value, step)

    return MetricLog(write, writer.close)


def _open_trackio(config: TrainConfig, _folder: Path, step: int) -> MetricLog:
    """Start a run in Trackio's local dashboard (``trackio show``), which needs no account, or resume it."""
    import trackio

    settings = config.model_dump(mode="json")
    run = trackio.init(project=PROJECT, name=config.name, config=settings, resume="allow" if step else "never")
    return MetricLog(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def _open_wandb(config: TrainConfig, folder: Path, _step: int) -> MetricLog:
    """Start a W&B run, or resume it. ``WANDB_PROJECT`` and ``WANDB_MODE`` set the project and the mode. W&B resumes by
    id, in which the creation time distinguishes a removed run of the same name."""
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=config.name,
        id=f"{config.name}-{int((folder / RUN_FILE).stat().st_mtime)}",
        resume="allow",
        reinit="create_new",
        dir=folder,
        config=config.model_dump(mode="json"),
    )
    return MetricLog(lambda step, metrics: run.log(dict(metrics), step=step), run.finish)


def log_to(name: LogName) -> OpenLog:
    """Return the function that opens a log of this kind. Raises UserError if the package is not installed."""
    message = f"{name} is not installed. Run pip install 'mxd-explorer[{name}]', or leave out --log."
    with explained(message, ImportError):
        import_module("torch.utils.tensorboard.writer" if name == "tensorboard" else name)
    return {"tensorboard": _open_tensorboard, "trackio": _open_trackio, "wandb": _open_wandb}[name]


def started_run(config: TrainConfig, data: Path) -> Run | None:
    """The run of this name, if it has weights or a checkpoint; a run that failed before its first counts as new."""
    folder = runs_folder(data) / config.name
    run = Run.load(folder, data) if (folder / RUN_FILE).is_file() else None
    has_started = run is not None and ((folder / WEIGHTS_FILE).is_file() or bool(checkpoints(folder)))
    return run if has_started else None


def resolve_batch(config: TrainConfig, data: Path, device: torch.device) -> TrainConfig:
    """Fill in the tokens per step, if they were not chosen: those of the run that is resumed, or ``GPU_BATCH``."""
    if device.type == "cpu" or "batch_tokens" in config.optimizer.model_fields_set:
        return config
    run = started_run(config, data)
    return config.with_optimizer(batch_tokens=GPU_BATCH if run is None else run.config.optimizer.batch_tokens)


def resolve_precision(config: TrainConfig, data: Path, language_model: LanguageModel) -> TrainConfig:
    """Replace ``auto`` by the precision of the run that is resumed, or else by that of the layer's device."""
    precision = config.optimizer.matmul_precision
    if precision == "auto" and (run := started_run(config, data)) is not None:
        precision = run.config.optimizer.matmul_precision
    width = build_layer_config(config, language_model.architecture).input_width
    device = language_model.device_of(config.layer)
    return config.with_optimizer(matmul_precision=resolved_precision(precision, device, width))


def check_resumable(config: TrainConfig, data: Path, resume: Resume) -> None:
    """Check that a run does not exist yet, or may be resumed with these settings. Raises UserError if the run exists
    and ``resume`` is ``never``, or it was started with other settings."""
    run = started_run(config, data)
    if run is None:
        return
    if resume == "never":
        raise UserError(f"Run '{config.name}' already exists. Use --resume to continue it or choose another --name.")
    saved = run.config
    if saved.origin is not None:
        raise UserError(f"Run '{config.name}' was imported and cannot be trained. Choose another --name.")
    if config.text.start_token is None:  # the run stores the one that was chosen
        saved = saved.model_copy(update={"text": saved.text.model_copy(update={"start_token": None})})
    if saved.order_seed == config.order_seed:  # the default may be written out
        saved = saved.model_copy(update={"data_seed": config.data_seed})
    differing = [name for name in TrainConfig.model_fields if getattr(saved, name) != getattr(config, name)]
    if differing:
        raise UserError(
            f"Run '{config.name}' was started with another {', '.join(differing)}. Resume it with the same settings "
            f"('{run.resume_command()}'), or choose another --name."
        )


class DivergedError(UserError):
    """The loss of a run is NaN or infinite."""

    def __init__(self, config: TrainConfig, step: int) -> None:
        super().__init__(
            f"Run '{config.name}' has diverged: the loss at step {step:,} is not finite. Train it again under another "
            f"--name, with a --learning-rate below {config.optimizer.learning_rate:g}."
        )
        self.run = config.name


class Occasional:
    """Work that repeats only after it has been a small share of the time: on a GPU, millions of tokens pass while a
    checkpoint is written. Quick work is always due."""

    def __init__(self) -> None:
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        """True if the work may repeat."""
        return time.monotonic() >= self._next

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Do the work inside the context, which decides when it is due again."""
        started = time.monotonic()
        yield
        ended = time.monotonic()
        if ended - started > QUICK_SECONDS:
            self._next = ended + (ended - started) / LARGEST_SHARE


class TrainingRun:
    """Trains one run batch by batch, and writes its checkpoints, log and database record."""

    def __init__(self, run: Run, trainer: LayerTrainer, database: Engine, open_log: OpenLog) -> None:
        self.run = run
        self.trainer = trainer
        self.database = database
        self.plan = BatchPlan.from_config(run.config)
        damage: UserError | None = None
        for checkpoint in checkpoints(run.folder):  # the newest that is not damaged
            try:
                trainer.restore(checkpoint, self.plan.batch_tokens)
                break
            except UserError as error:
                damage = damage or error
        else:
            if damage is not None:
                raise damage
        self.first_step = trainer.step
        self.checkpointing, self.ranking = Occasional(), Occasional()
        self.started = time.monotonic()
        with writing(database) as session:
            record = enter(session, run, trainer.layer, self.plan.tokens)
            record.trained_tokens = trainer.tokens
            repeated = MetricRecord.run_id == record.id, MetricRecord.step > trainer.step
            session.execute(delete(MetricRecord).where(*repeated))
            self.run_id = record.id
        rows = metrics_of(database, self.run_id)
        # Kept by a run that is resumed with no steps left.
        last = [rows[-1][name] if rows else math.nan for name in TrainMetrics._fields]
        self.last = TrainMetrics(*last)
        self.log = open_log(run.config, run.folder, self.first_step)

    @classmethod
    def open(
        cls, trainer: LayerTrainer, data: Path, database: Engine, language_model: LanguageModel, log: OpenLog
    ) -> Self:
        """Create the run's folder, or resume the run from its last checkpoint. The main process opens it first."""
        run = started_run(trainer.config, data)
        if run is None and trainer.group.is_main:
            run = Run.create(trainer.config, data, language_model.tokenizer)
        run = run or Run.load(runs_folder(data) / trainer.config.name, data)
        return cls(run, trainer, database, log)

    def log_if_due(self) -> None:
        """Log the metrics every ``log_every`` steps and after the last step. Raises DivergedError if a logged metric is
        not finite."""
        if self.trainer.step % self.run.config.log_every == 0 or self.is_done:
            self._log()

    @property
    def is_done(self) -> bool:
        return self.trainer.step >= self.plan.steps

    @property
    def checkpoint_steps(self) -> int:
        return max(1, self.run.config.checkpoint_every // self.plan.batch_tokens)

    @property
    def needs_checkpoint(self) -> bool:
        """True every ``checkpoint_every`` tokens, unless checkpoints take too large a share of the time. Collective."""
        if self.trainer.step % self.checkpoint_steps or self.is_done:
            return False
        return not self.trainer.group.any(not self.checkpointing.is_due)  # each process measures another time

    def save(self) -> None:
        with self.checkpointing.measured():
            self.trainer.save(self.run.folder, self.seconds)

    def close(self) -> TrainResult:
        """Write a checkpoint, and publish the layer if all steps have been taken."""
        status: Literal["finished", "stopped"] = "finished" if self.is_done else "stopped"
        if self.trainer.metrics.steps:
            self._log()
        self.trainer.save(self.run.folder, self.seconds)
        if status == "finished" and self.trainer.group.is_main:
            # The weights come last, because they mark the run as finished.
            finished = self.run.folder / "finished"
            with atomic_directory(finished) as folder:
                if self.trainer.layer.shards is None:
                    self.trainer.layer.save(folder)
                else:  # the checkpoint that was just written has all rows
                    shutil.copyfile(self.run.weights_folder / CONFIG_FILE, folder / CONFIG_FILE)
                    join_parts(self.run.weights_folder / WEIGHTS_FILE, folder / WEIGHTS_FILE)
            for name in (CONFIG_FILE, WEIGHTS_FILE):
                (finished / name).replace(self.run.folder / name)
            finished.rmdir()
            metrics = json.dumps(metrics_of(self.database, self.run_id))
            atomic_write(self.run.folder / METRICS_FILE, metrics + "\n")
        self.set_status(status)
        return TrainResult(
            run=self.run.name,
            status=status,
            tokens=self.trainer.tokens,
            normalized_mse=self.last.normalized_mse,
            dead_share=self.last.dead_share,
            dead_after_tokens=self.trainer.dead_after_tokens,
            routing_share=self.trainer.routing_share,
            step_tokens=self.plan.batch_tokens,
            tokens_per_second=self.tokens_per_second,
        )

    def set_status(self, status: str, error: str | None = None) -> None:
        """Close the log and write the final status to the database."""
        self.log.close()
        with writing(self.database) as session:
            record = session.get_one(RunRecord, self.run_id)
            record.status, record.error, record.updated_at = status, error, utc_now()
            record.trained_tokens = self.trainer.tokens

    @property
    def seconds(self) -> float:
        """Training time over all resumptions."""
        return self.trainer.previous_seconds + time.monotonic() - self.started

    @property
    def tokens_per_second(self) -> float:
        """Throughput in this process, including the forward passes of the model."""
        tokens = (self.trainer.step - self.first_step) * self.plan.batch_tokens
        return tokens / max(time.monotonic() - self.started, 1e-9)

    def _log(self) -> None:
        metrics = self.trainer.pop_metrics()
        if not math.isfinite(metrics.normalized_mse):
            raise DivergedError(self.run.config, self.trainer.step)
        self.last = metrics
        timing = {"tokens_per_second": self.tokens_per_second, "seconds": self.seconds}
        row = {"tokens": self.trainer.tokens, **timing, **metrics._asdict(), **self._expert_ranks()}
        self.log.write(self.trainer.step, row)
        with writing(self.database) as session:
            session.merge(MetricRecord(run_id=self.run_id, step=self.trainer.step, **row))
            record = session.get_one(RunRecord, self.run_id)
            record.trained_tokens, record.updated_at = self.trainer.tokens, utc_now()

    def _expert_ranks(self) -> dict[str, float]:
        """Expert ranks, at most once per checkpoint and at the end, because an SVD takes longer than a step."""
        step, previous = self.trainer.step, self.trainer.step - self.run.config.log_every
        is_first = previous <= 0 or step // self.checkpoint_steps != previous // self.checkpoint_steps
        if not (self.is_done or (is_first and self.ranking.is_due)):
            return {}
        try:
            with self.ranking.measured():
                ranks = self.trainer.expert_ranks()
        except LinAlgError as error:  # the last step made weights non-finite
            raise DivergedError(self.run.config, self.trainer.step) from error
        return {} if ranks is None else asdict(ranks)


def train_layers(
    configs: Sequence[TrainConfig],
    data: Path,
    database: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    group: ProcessGroup = SINGLE_PROCESS,
    parallel: Parallel = "tokens",
    launch: Launch = "eager",
    log: OpenLog = no_log,
    cache: ActivationCache | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    trainer_class: type[LayerTrainer] = LayerTrainer,
) -> list[TrainResult]:
    """Train layers on one pass over the activations, or resume them, until all tokens are used or the task is
    cancelled. Results are in the order of ``configs``.

    The processes of a group share every step and end with the weights of a single process, up to rounding. All of them
    must be able to read the data folder; only the main process writes to it, to the database and to ``log``. If
    ``parallel`` is ``runs``, they share the forward passes and exchange the activations; each trains its own runs, with
    the tokens of all, and writes what belongs to them. With a ``cache``, activations are read from it, and the language
    model only gives its shapes and its weights.

    Raises:
        DivergedError: a run has diverged. The others are saved and can be resumed without it.
        WriterLostError: another process was writing the cache and has ended. The runs are saved.
        UserError: the text is too short, a run exists (and ``resume`` is ``never``) or was started with other settings.
            Another process is training it. The runs need different batches, or two have the same name. The cache does
            not have the runs' batches.
    """
    (name, count), *_ = Counter(config.name for config in configs).most_common(1)
    if count > 1:
        raise UserError(f"{count} runs have the name '{name}'. Give each its own name.")
    for config in configs:
        build_layer_config(config, language_model.architecture)
        if config.parents:
            command = resume_command(config.name, config.parents)
            raise UserError(f"Run '{config.name}' is fine-tuned jointly with other layers. Resume it with '{command}'.")
    configs = [
        resolve_batch(with_dtype(config, language_model.dtype), data, language_model.device) for config in configs
    ]
    configs = [resolve_precision(config, data, language_model) for config in configs]
    stream = StreamSpec.from_configs(configs)
    stream.plan.shard(group)
    ranks = _ranks(configs, language_model, group) if parallel == "runs" else [group.rank] * len(configs)
    own = [config for config, rank in zip(configs, ranks, strict=True) if rank == group.rank]
    placement = Placement(SINGLE_PROCESS if parallel == "runs" else group, parallel, launch)
    # Build all layers before creating the first folder, so that errors leave nothing behind.
    source = LiveActivations(language_model) if cache is None else cache
    if cache is not None:
        cache.check(stream)
    elif any(started_run(config, data) is None for config in configs):  # the text of the others was long enough
        check_text_length(stream.text, language_model.tokenizer, stream.plan.tokens)
    # Complete, not a shard, because every process initialises the same weights.
    first_buffer = next(source.buffers(stream)) if any(map(needs_sample, configs)) else None
    trim_freed_memory()  # the forward passes' gaps, before layers are placed among them
    sample = {} if first_buffer is None else first_buffer.captured
    trainers = [
        trainer_class.create(config, language_model, stream.plan.steps, placement, sample.get(config.layer))
        for config in own
    ]
    del sample
    writes = placement.group.is_main
    with ExitStack() as locks:
        for config in own if writes else ():
            lock = runs_folder(data) / config.name / LOCK_FILE
            locks.enter_context(exclusive_lock(lock, f"Run '{config.name}' is being trained"))
        for trainer in trainers:
            check_resumable(trainer.config, data, resume)
        group.barrier()  # all processes have checked before a folder is created
        log = log if writes else no_log
        with group.main_first():  # it creates the folders of shared runs
            runs = [TrainingRun.open(trainer, data, database, language_model, log) for trainer in trainers]
        try:
            first_step = min(group.all_items([run.trainer.step for run in runs]))
            positions = group.all_items([run.trainer.text for run in runs])
            limit = first_step // stream.plan.steps_per_buffer * stream.plan.sequences_per_buffer
            # The last position that is not after the buffer of the first step.
            usable = [position for position in positions if position.sequences <= limit]
            progress = TextProgress(max(usable, key=lambda position: position.sequences, default=TEXT_START))
            own_buffer = first_buffer if group.is_single else None
            # Closed here, because garbage collection might close it in the thread that it would have to join.
            # TF32 is a setting of the whole process, and another thread computes the next buffer meanwhile.
            uses_tf32 = any(config.optimizer.matmul_precision == "high" for config in configs)
            with (
                matmul_precision("high" if uses_tf32 else "highest"),
                closing(batches(source, stream, first_step, group, own_buffer, progress)) as shares,
            ):
                del first_buffer, own_buffer  # so that their memory is freed once the tokens are used
                steps = _joined(shares, group, configs, ranks) if parallel == "runs" else shares
                _train(runs, enumerate(steps, start=first_step), stream, group, progress, callbacks)
            closed = [run.close() for run in runs]
            results = {result.run: result for result in (group.all_items(closed) if parallel == "runs" else closed)}
            return [results[config.name] for config in configs]
        except UserError as error:
            _close_failed(error, runs)
            raise


def _ranks(configs: Sequence[TrainConfig], language_model: LanguageModel, group: ProcessGroup) -> list[int]:
    layers = [build_layer_config(config, language_model.architecture) for config in configs]
    shares = spread([LayerSizes.from_config(layer).step_flops_per_token for layer in layers], group.world_size)
    return [next(rank for rank, share in enumerate(shares) if run in share) for run in range(len(configs))]


def _joined(
    shares: Iterable[Mapping[int, MlpActivations]],
    group: ProcessGroup,
    configs: Sequence[TrainConfig],
    ranks: Sequence[int],
) -> Iterator[dict[int, MlpActivations]]:
    """Yield the whole batch of each step from every process's share of it, of the layers that this process trains."""
    receivers: dict[int, set[int]] = {}
    for config, rank in zip(configs, ranks, strict=True):
        receivers.setdefault(config.layer, set()).add(rank)
    for share in shares:
        joined = {}
        for layer, to in receivers.items():
            inputs, outputs = (group.collect(rows, to) for rows in share[layer])
            if inputs is not None and outputs is not None:
                joined[layer] = MlpActivations(inputs, outputs)
        yield joined


def _train(
    runs: Sequence[TrainingRun],
    numbered_batches: Iterable[tuple[int, Mapping[int, MlpActivations]]],
    stream: StreamSpec,
    group: ProcessGroup,
    progress: TextProgress,
    callbacks: Callbacks,
) -> None:
    """Take the remaining steps. Runs that are ahead skip the batches that they have used."""
    for step, batch in numbered_batches:
        due = [run for run in runs if run.trainer.step == step]
        diverged: DivergedError | None = None
        try:
            for run in due:
                run.trainer.train_step(batch[run.trainer.config.layer])
                run.trainer.text = progress.position
                run.log_if_due()
        except DivergedError as error:  # raised once the other processes know that they must stop
            diverged = error
        callbacks.on_progress((step + 1) * stream.plan.batch_tokens, stream.plan.tokens, _note(runs))
        if group.any(callbacks.is_cancelled() or diverged is not None):
            if diverged is not None:
                raise diverged
            return
        for run in due:
            if run.needs_checkpoint:
                run.save()


def _close_failed(error: UserError, runs: Sequence[TrainingRun]) -> None:
    """Save the runs that the error leaves intact, all but a diverged one, and mark the others as failed."""
    for run in runs:
        is_intact = isinstance(error, WriterLostError) or (
            isinstance(error, DivergedError) and run.run.name != error.run
        )
        try:
            if not is_intact:
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
