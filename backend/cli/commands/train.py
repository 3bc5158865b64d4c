"""``mxd train`` and ``mxd finetune``: train one layer or a sweep, resume, or train runs of several layers jointly."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import Interrupted, StopRequest, columns, progress, progress_of, rank_and_processes
from mxd.backend.cli.parser import nest, options, validate
from mxd.trainer.config.base import parse_count
from mxd.trainer.config.layer import method_traits, methods
from mxd.trainer.config.training import PLACE, DtypeChoice, FinetuneConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluation_metrics import LIMITS
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.display import suggest

if TYPE_CHECKING:
    from mxd.trainer.data.activation_cache import ActivationCache
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run
    from mxd.trainer.training.plan import TrainPlan, TrainSetup
    from mxd.trainer.training.train import TrainResult
    from mxd.trainer.utils.distributed import ProcessGroup

SHORT = {"layer": "l", "method": "", "num_experts": "n", "k": "k", "init": "", "learning_rate": "lr", "seed": "s"}
"""Setting that a sweep may vary -> prefix of its value in run names."""


def run_name(pattern: str, values: Mapping[str, Any], varied: Sequence[str]) -> str:
    """Return ``pattern`` with its ``{setting}`` placeholders filled in, followed by the varied settings it lacks."""
    spellings = {setting.replace("_", "-"): setting for setting in SHORT} | {setting: setting for setting in SHORT}

    def fill(placeholder: re.Match[str]) -> str:
        if placeholder[1] not in spellings:
            known = ", ".join(f"{{{setting.replace('_', '-')}}}" for setting in SHORT)
            raise UserError(f"Unknown placeholder in --name: {placeholder[0]}. Known placeholders: {known}.")
        return _format_setting(values[spellings[placeholder[1]]])

    named = {spellings.get(placeholder) for placeholder in re.findall(r"\{([^{}]*)\}", pattern)}
    suffixes = [f"-{SHORT[setting]}{_format_setting(values[setting])}" for setting in varied if setting not in named]
    return re.sub(r"\{([^{}]*)\}", fill, pattern) + "".join(suffixes)


def _format_setting(value: object) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def format_plan(plan: TrainPlan) -> str:

    def short(number: float) -> str:
        size, unit = next(((size, unit) for size, unit in UNITS if number >= size), (1, ""))
        return f"{number / size:.3g} {unit}"

    each = f", {plan.processes} processes with one each" if plan.processes > 1 else ""
    lines = [
        f"device          {plan.device}{each}",
        f"language model  {short(plan.language_model_parameters)} parameters, "
        f"{short(plan.language_model_used_parameters)} of them in the blocks that run, in {plan.language_model_dtype}",
    ]
    if plan.shard_model is not None:
        lines.append(
            f"sharding        --shard-model {plan.shard_model}: each process holds a part of the language model"
        )
    lines += [
        f"{layer.run}: {layer.method} of layer {layer.layer}, N {layer.num_experts:,}, K {layer.k}, "
        f"{short(layer.parameters)} parameters, {short(layer.step_flops_per_token)}FLOP per token"
        for layer in plan.layers
    ]
    lines += ["memory", *(f"  {kind:<34} {size / 1e9:8.2f} GB" for kind, size in plan.memory.items())]
    lines.append(f"  {'total':<34} {plan.memory_total / 1e9:8.2f} GB, {plan.memory_free / 1e9:.2f} GB free")
    if plan.communication:
        kinds = ", ".join(f"{kind} {1000 * seconds:,.1f} ms" for kind, seconds in plan.communication.items())
        inside, between = plan.links
        assumed = f"at {inside / 1e9:,.3g} GB/s inside a machine and {between / 1e9:,.3g} GB/s between machines"
        lines.append(f"communication   {kinds} per step, {assumed}")
    hours = plan.hours
    time = f"{hours * 60:.1f} minutes" if hours * 60 >= 1 else f"{hours * 3600:.0f} seconds"
    if hours >= 1:
        time = f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"
    return "\n".join(
        [
            *lines,
            f"disk            {plan.disk / 1e9:.2f} GB for checkpoints",
            f"compute         {short(plan.flops_per_token)}FLOP per token, "
            f"{short(plan.flops_per_token * plan.tokens)}FLOP for {plan.tokens:,} tokens",
            f"expected        {plan.tokens_per_second:,.0f} tokens/s, {time}, "
            f"{plan.share_of_products:.0%} of the speed of the matrix products alone",
        ]
    )


NOT_FLAGS = frozenset({"name", "language_model_dtype", "origin", "parents"})
"""Fields of ``TrainConfig`` that other flags or other commands set."""
TRAIN_FLAGS = FlagsOf(
    TrainConfig,
    without=NOT_FLAGS,
    positional=frozenset({"language_model"}),
    several=frozenset(SHORT),
    optional=True,
    types={"method": Literal[methods("core")]},
)


class TrainCommand(ModelCommand):
    """Train a sparse layer of experts on the MLP of one block of a language model.

    Comma-separated values run a sweep: every combination is trained in one pass over the activations.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "mxd train openai-community/gpt2 --layer 8 --dataset corpus.jsonl --tokens 20M",
        "mxd train --config gpt2 --dataset corpus.jsonl --k 16,32,64 --plan",
        "mxd train --name gpt2-l8-k32 --resume",
    )
    groups: ClassVar = """
    model and data: presets name layer dataset column split tokens context-length on-short-text start-token data-seed
    layer: method num-experts k min-k rank mixing
    optimizer: learning-rate warmup-ratio decay-ratio batch-tokens buffer-tokens matmul-precision
    initialisation and regularisation: init seed k-spread load-balance-weight diversity-weight freeze inputs
    activation cache: cache cache-tokens
    checkpoints and logging: resume checkpoint-every log-every log
    hardware: device dtype launch shard-model parallel processes nodes plan
    """

    methods: ClassVar[tuple[str, ...]] = methods("core")
    shares_work: ClassVar = True
    config_class: ClassVar[type[TrainConfig]] = TrainConfig
    program: ClassVar = "mxd train"

    flags: Annotated[dict[str, Any], TRAIN_FLAGS]
    name: str | None = None
    """Name of the run (default: model, layer and K). A sweep appends what varies, or fills in placeholders:
    sweep-{method}-k{k}."""
    log: Literal["tensorboard", "trackio", "wandb"] | None = None
    """Also log metrics to TensorBoard (event files in the run's folder), Trackio or Weights & Biases. Each needs its
    package: pip install 'mxd-explorer[tensorboard]'."""
    resume: bool = False
    """Resume the run if it exists. With --name alone, its own settings are used."""
    launch: Literal["eager", "graph"] = "eager"
    """How a GPU gets the kernels of a step: one by one, or as one recorded CUDA graph, which is faster if steps are
    small. graph has been tested without a GPU only."""
    shard_model: Literal["auto", "none", "fsdp", "tp"] = "auto"
    """Sharding of the language model over the processes of torchrun on a machine. none: each holds all blocks that run.
    fsdp: each holds a part, and gathers a block when it runs (PyTorch's FSDP2). tp: each computes a part of every
    matrix product (transformers' tensor parallelism, on one machine). Default: none if it fits in memory, else fsdp."""
    parallel: Literal["auto", "tokens", "experts", "runs"] = "auto"
    """Division of the work over the processes of torchrun. With tokens, each step is divided, and every process holds
    all layers. With experts, experts are divided too, for layers that do not fit on one GPU. With runs, each process
    trains and writes its own runs of a sweep. The processes then exchange activations instead of gradients; on several
    machines, they need a PostgreSQL database. Default: runs on one machine if there is at least one per process, else
    tokens."""
    presets: bool = False
    """List the presets for open language models, for --config."""
    plan: bool = False
    """Dry run: print parameters, memory, FLOPs, communication, expected throughput and a recommended command. --device
    may then be one that is not here: a100, h100, h200, b200, l40s or mi300x."""
    cache: Path | None = None
    """Folder for the MLP activations of all layers of this command. They are written on first use; later commands with
    the same text train without forward passes of the language model, even while another command is still writing."""
    cache_tokens: Annotated[int, BeforeValidator(parse_count), Field(gt=0)] | None = None
    """Number of tokens to write to --cache (default: --tokens). With fewer, and --on-short-text repeat, training reads
    them more than once."""
    processes: Annotated[int, Field(gt=0)] | None = None
    """Number of torchrun processes that --plan assumes, each with a device like this one (default: those of
    torchrun, or 1). The plan recommends fewer where communication makes more slower."""
    nodes: Annotated[int, Field(gt=0)] = 1
    """Number of machines over which --plan divides the processes (default: 1)."""
    dtype: DtypeChoice = "auto"
    """Data type of the language model. auto: bfloat16 on hardware with native support, else float32; a resumed run
    keeps its own. The layer is always trained in float32."""

    def run(self) -> None:
        rank, _ = rank_and_processes()
        if rank > 0 and (self.presets or self.plan):
            return  # the main process prints them
        if self.presets:
            self._list_presets()
            return
        settings = self.settings()
        configs = self.configs(settings.data)  # before the slow imports, so that mistakes are reported immediately
        if self.plan:
            self._plan(configs, settings.data)
            return
        from mxd.backend.database.engine import open_database
        from mxd.trainer.language_model.model import LanguageModel
        from mxd.trainer.storage.database.open import IN_MEMORY
        from mxd.trainer.training.plan import TrainSetup, check_fits_memory
        from mxd.trainer.training.precision import dtype_of, resolve_dtypes, slow_dtype_warning
        from mxd.trainer.training.train import log_to, no_log, resolve_batch
        from mxd.trainer.utils.distributed import init_process_group
        from mxd.trainer.utils.memory import keep_freed_memory

        keep_freed_memory()
        log = no_log if self.log is None else log_to(self.log)
        stop = StopRequest()
        title = configs[0].name if len(configs) == 1 else f"{len(configs)} runs"
        # torchrun stops all processes if one fails. They listen until they have found out which.
        with (
            stop.listening(),
            init_process_group() as group,
            progress_of(group, f"Training {title}") as progress,
            ExitStack() as at_end,
        ):
            device = group.device(self.device)
            setting = TrainSetup.from_device_name(device, group.world_size, group.nodes)
            configs = [resolve_batch(config, settings.data, setting.device) for config in configs]
            configs = resolve_dtypes(configs, settings.data, setting.device)
            setting = self._divided(configs, setting, group)
            check_fits_memory(configs, setting)
            if setting.parallel == "runs" and setting.nodes > 1 and settings.database_url.startswith("sqlite"):
                raise UserError(
                    "With --parallel=runs, all machines write to the database, and SQLite works on one only. Set "
                    "MXD_DATABASE to PostgreSQL, or use --parallel=tokens."
                )
            dtype = configs[0].language_model_dtype
            assert dtype is not None
            if group.is_main and (warning := slow_dtype_warning(dtype, setting.device)):
                print(f"mxd: {warning}", file=sys.stderr)
            language_model = LanguageModel.load(
                configs[0].language_model,
                device,
                dtype_of(dtype),
                last_layer=max(config.layer for config in configs),
                sharding=setting.sharding,
            )
            database = group.take_turn(lambda: open_database(settings.database_url))
            if database is None:
                database = open_database(settings.database_url if setting.parallel == "runs" else IN_MEMORY)
            at_end.callback(database.dispose)
            results: Sequence[TrainResult] = self._trainer(
                configs,
                settings.data,
                database,
                language_model,
                resume="if-any" if self.resume else "never",
                group=group,
                parallel=setting.parallel,
                launch=self.launch,
                log=log,
                cache=self._filled_cache(configs, language_model, group, stop),
                callbacks=Callbacks(progress, stop),
            )
        if not group.is_main:
            return
        documents = [asdict(result) for result in results]
        self.report(documents if len(documents) > 1 else documents[0], "\n".join(map(_format_result, results)))
        for warning in filter(None, map(_routing_warning, results)):
            print(f"mxd: {warning}", file=sys.stderr)
        if any(result.status != "finished" for result in results):
            again = f"{self.program} --name {configs[0].name}" if len(configs) == 1 else "the same command with"
            raise Interrupted(f"Stopped. To continue, run {again} --resume.", stop.exit_code)

    def _list_presets(self) -> None:
        from mxd.trainer.config.presets import presets

        rows = [
            (
                preset.name,
                preset.language_model,
                str(preset.layer),
                "matched" if preset.num_experts is None else f"{preset.num_experts:,}",
                str(preset.k),
                preset.tokens,
            )
            for preset in presets()
        ]
        text = columns(("preset", "language model", "layer", "N", "K", "tokens"), rows, 2)
        self.report([asdict(preset) for preset in presets()], "\n".join(text))

    def _filled_cache(
        self, configs: Sequence[TrainConfig], language_model: LanguageModel, group: ProcessGroup, stop: StopRequest
    ) -> ActivationCache | None:
        """The cache of ``--cache``, written by all processes, or by another job. Its rate is not that of training."""
        if self.cache is None:
            return None
        from mxd.trainer.data.activation_cache import filled_cache
        from mxd.trainer.data.activations import StreamSpec

        tokens = self.cache_tokens or configs[0].tokens
        stream = StreamSpec.from_configs([config.model_copy(update={"tokens": tokens}) for config in configs])
        with progress_of(group, "Caching activations") as progress:
            cache = filled_cache(self.cache, stream, language_model, group, Callbacks(progress, stop))
        if group.is_main and not cache.is_independent:
            print(f"mxd: Another process is writing {self.cache}. Training waits for its buffers.", file=sys.stderr)
        return cache

    def _divided(self, configs: Sequence[TrainConfig], setting: TrainSetup, group: ProcessGroup) -> TrainSetup:
        """The setting with the choices of ``--parallel`` and ``--shard-model``, the same in all processes."""
        from mxd.trainer.training.plan import can_spread_runs, choose_sharding

        if self.parallel != "auto":
            setting = setting._replace(parallel=self.parallel)
        elif setting.nodes == 1 and not group.any(not can_spread_runs(configs, setting)):
            setting = setting._replace(parallel="runs")
        if self.shard_model == "auto":
            return setting._replace(
                sharding="fsdp" if group.any(choose_sharding(configs, setting) is not None) else None
            )
        if self.shard_model == "none":
            return setting
        if setting.processes == 1:
            raise UserError(
                f"--shard-model={self.shard_model} needs several processes. Start them with "
                f"'torchrun --nproc-per-node N -m {self.program} …'."
            )
        if setting.auto_map:
            raise UserError("--shard-model and --device=auto-map exclude each other. Omit one of them.")
        return setting._replace(sharding=self.shard_model)

    @property
    def _trainer(self) -> Any:
        from mxd.trainer.training.train import train_layers

        return train_layers

    def _plan(self, configs: list[TrainConfig], data: Path) -> None:
        """Print what training requires."""
        from mxd.trainer.training.plan import TrainSetup, plan_training, recommend
        from mxd.trainer.training.precision import in_bfloat16, resolve_dtypes
        from mxd.trainer.training.train import resolve_batch
        from mxd.trainer.utils.distributed import SINGLE_PROCESS
        from mxd.trainer.utils.memory import keep_freed_memory

        keep_freed_memory()  # as in training, because it changes what is free
        processes = self.processes or rank_and_processes()[1]
        setting = TrainSetup.from_device_name(self.device, processes, self.nodes)
        configs = [resolve_batch(config, data, setting.device) for config in configs]
        if setting.datasheet is not None:
            configs = list(map(in_bfloat16, configs))
        configs = resolve_dtypes(configs, data, setting.device)
        plan = plan_training(configs, self._divided(configs, setting, SINGLE_PROCESS))
        best = recommend(configs, setting)
        command = None if best is None else self._command(best.setup)
        text = format_plan(plan)
        if best is not None:
            text += f"\nrecommended     ({best.tokens_per_second:,.0f} tokens/s)  {command}"
        self.report({**asdict(plan), "links": plan.links._asdict(), "recommended": command}, text)
        if plan.refusal is not None:
            raise UserError(plan.refusal)

    def _command(self, setup: TrainSetup) -> str:
        left_out = dict.fromkeys(["--plan", "--json"], 0)
        left_out |= dict.fromkeys(["--parallel", "--shard-model", "--processes", "--nodes"], 1)  # followed by a value
        if setup.datasheet is not None:
            left_out["--device"] = 1
        words = iter(self._words)
        kept = []
        for word in words:
            flag, is_given, _ = word.partition("=")
            if flag not in left_out:
                kept.append(word)
            elif left_out[flag] and not is_given:
                next(words, None)
        if setup.sharding is not None:
            kept += ["--shard-model", setup.sharding]
        if setup.processes == 1:
            return shlex.join(["mxd", *kept])
        kept += ["--parallel", setup.parallel]
        several = ["--nnodes", str(setup.nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", "HOST:29500"]
        started = ["torchrun", *(several if setup.nodes > 1 else ()), "--nproc-per-node", str(setup.grid.inside)]
        return shlex.join([*started, "-m", "mxd", *kept])

    def configs(self, data: Path) -> list[TrainConfig]:
        """Return one config per run of the sweep, or the settings of the run to resume with the flags given now."""
        swept = {name: self.flags[name] for name in SHORT if name in self.flags}
        # One mapping per combination; the last setting varies fastest.
        chosen = [dict(zip(swept, values, strict=True)) for values in product(*swept.values())]
        config = saved_config(data, str(self.name)) if self.resume and len(chosen) == 1 else None
        if config is not None:
            if not issubclass(self.config_class, type(config)):
                raise UserError(f"Run '{self.name}' has experimental settings. Use 'mxd lab train'.")
            saved, given = config.model_dump(), nest(self.config_class, self._flags(chosen[0]))
            nested = {name: {**saved[name], **value} for name, value in given.items() if isinstance(value, dict)}
            return [self._validate({**saved, **given, **nested})]
        varied = [name for name, values in swept.items() if len(values) > 1]
        configs = [self._validate({**nest(self.config_class, self._flags(one)), "name": "unnamed"}) for one in chosen]
        order = configs[0].seed if configs[0].data_seed is None else configs[0].data_seed
        named = []
        for config in configs:
            name = run_name(self._pattern(), {**config.optimizer.model_dump(), **config.model_dump()}, varied)
            # Runs that are trained together read the text in the same order.
            seed = None if config.seed == order else order
            named.append(self._validate({**config.model_dump(exclude_unset=True), "name": name, "data_seed": seed}))
        return named

    def _validate(self, values: Mapping[str, Any]) -> TrainConfig:
        return validate(self.config_class, values, type(self), self.program)

    def _flags(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """Return the flags given for one combination, without those that only other combinations use."""
        flags = {**self.flags, **one}
        if "language_model" in flags and Path(flags["language_model"]).is_dir():
            # Absolute, because the run is used from other working directories.
            flags["language_model"] = str(Path(flags["language_model"]).resolve())
        if self.dtype != "auto":
            flags["language_model_dtype"] = self.dtype
        if flags.get("num_experts") == "auto":
            flags["num_experts"] = None
        traits = {method: method_traits(method) for method in self._methods()}
        own = traits.get(flags.get("method", "mxd"))
        if any(its.rank is not None for its in traits.values()) and (own is None or own.rank is None):
            flags.pop("rank", None)
        if any(its.has_top_k for its in traits.values()) and (own is None or not own.has_top_k):
            flags.pop("min_k", None)
        return flags

    def _methods(self) -> Sequence[str]:
        """Return the methods of the sweep."""
        for method in self._swept("method"):
            if method in methods("experimental") and method not in self.methods:
                raise UserError(f"Method '{method}' is experimental. Use 'mxd lab train'.")
            if method not in self.methods:
                known = ", ".join(self.methods)
                raise UserError(
                    f"Unknown method '{method}'.{suggest(str(method), self.methods)} Known methods: {known}."
                )
        return self._swept("method")

    def _swept(self, name: str) -> Sequence[Any]:
        values: Sequence[Any] = self.flags.get(name) or [options(self.config_class)[name].default]
        return values

    def _pattern(self) -> str:
        """Return the pattern of the run names: --name, or the language model with its layer, method and K."""
        if self.name is not None:
            return self.name
        source = Path(str(self.flags.get("language_model"))).name
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", source).strip("-._").lower() or "run"
        method = "" if list(self._swept("method")) == ["mxd"] else "-{method}"
        return f"{slug}-l{{layer}}{method}-k{{k}}"


def saved_config(data: Path, name: str) -> TrainConfig | None:
    """Return the settings of a run to resume; None if it is new."""
    from mxd.trainer.storage.run import RUN_FILE, Run, runs_folder

    folder = runs_folder(data) / name
    return Run.load(folder, data).config if (folder / RUN_FILE).is_file() else None


def _format_result(result: TrainResult) -> str:
    share = "" if result.routing_share is None else f"routing share of the output {result.routing_share:.2f}, "
    return (
        f"{result.run}: {result.tokens:,} tokens, normalised MSE {result.normalized_mse:.4f}, {share}"
        f"{result.dead_share:.1%} of experts active on none of the last {result.dead_after_tokens:,} tokens, "
        f"{result.tokens_per_second:,.0f} tokens/s"
    )


def _routing_warning(result: TrainResult) -> str | None:
    """Return a warning if the layer's output hardly depends on its routing."""
    share = result.routing_share
    if share is None or not share < LIMITS["routing_share"]:
        return None
    return (
        f"{result.run}: the routing share of the output is only {share:.2f} on the last {result.step_tokens:,} tokens. "
        "The rest comes from a dense map that is the same for every token, so no expert explains it. "
        "'mxd evaluate' measures the share of the loss."
    )


class FinetuneCommand(ModelCommand):
    """Fine-tune runs of several layers jointly, end to end, with a KL loss against the original model.

    New runs are written. The named runs stay unchanged.
    """

    examples: ClassVar = (
        "mxd finetune l0 l1 l2 --dataset corpus.jsonl --tokens 2M",
        "mxd finetune l0 l1 l2 --dataset corpus.jsonl --tokens 2M --name '{run}-joint'",
        "mxd finetune l0 l1 l2 --resume",
    )
    groups: ClassVar = """
    model and data: name dataset column split tokens context-length on-short-text start-token
    optimizer: learning-rate warmup-ratio decay-ratio batch-tokens seed
    checkpoints and logging: resume checkpoint-every log-every
    hardware: device
    """

    names: Positional[list[str]]
    """Names or folders of the runs. All must belong to the same language model and to different layers."""
    flags: Annotated[dict[str, Any], FlagsOf(FinetuneConfig, without=frozenset({"buffer_tokens"}), optional=True)]
    resume: bool = False
    """Resume the new runs if they exist. With --name alone, their own settings are used."""

    def run(self) -> None:
        data, runs = self.settings().data, self.load_runs(self.names)
        config = self.config(runs, data)
        from mxd.trainer.training.finetune import finetune, new_run_configs
        from mxd.trainer.utils.memory import keep_freed_memory

        new_run_configs(runs, config)  # reports invalid settings before anything large is loaded
        keep_freed_memory()
        stop = StopRequest()
        title = f"Fine-tuning {len(runs)} runs"
        with self.opened() as database, stop.listening(), progress(title) as show:
            result = finetune(
                runs,
                config,
                data,
                database,
                self.load_language_model(runs[0].language_model_source),
                resume="if-any" if self.resume else "never",
                callbacks=Callbacks(show, stop),
            )
        lines = [f"{run.run}: {run.tokens:,} tokens, normalised MSE {run.normalized_mse:.4f}" for run in result.runs]
        if result.kl_first is not None and result.kl_last is not None:
            change = f"{result.kl_first:.4f} nats at first, {result.kl_last:.4f} at last"
            lines.append(f"KL divergence from the original model: {change}")
        self.report(asdict(result), "\n".join(lines))
        if any(run.status != "finished" for run in result.runs):
            raise Interrupted("Stopped. To continue, run the same command with --resume.", stop.exit_code)

    def config(self, runs: Sequence[Run], data: Path) -> FinetuneConfig:
        """Return the settings given, on top of those of the runs to resume."""
        given = nest(FinetuneConfig, self.flags)
        saved: dict[str, Any] = {}
        if self.resume:
            # The settings of the new runs, taken from the first one if it exists.
            pattern: str = self.flags.get("name") or FinetuneConfig.model_fields["name"].default
            config = saved_config(data, pattern.replace(PLACE, runs[0].name))
            if config is not None:
                saved = config.model_dump(include=set(FinetuneConfig.model_fields))
                saved |= {"seed": config.order_seed, "name": pattern}
        trained = runs[0].config.text.model_dump(include={"context_length", "start_token"})
        text = saved.get("text", trained) | given["text"]
        explicit = {name: value for name, value in given["optimizer"].items() if name in self.flags}
        optimizer = given["optimizer"] | saved.get("optimizer", {}) | explicit
        values = {**saved, **given, "text": text, "optimizer": optimizer}
        return validate(FinetuneConfig, values, type(self), "mxd finetune")
