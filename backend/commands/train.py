"""``mxd train``: fit layers, or go on fitting them."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import Interrupted, StopRequest, progress_of
from backend.commands.plan import plan_in_words
from backend.commands.sweep import SHORT, Several, combinations, run_name
from trainer.config import CollapseConfig, Count, FittedMethod, OptimizerConfig, Size, Start, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.gate_config import FittedGate, FittedGateConfig
from trainer.methods import NO_TOP_K, WITH_RANK

if TYPE_CHECKING:
    from trainer.ongoing import TrainResult

PARTS: dict[str, type[BaseModel]] = {
    "text": TextConfig,
    "optimizer": OptimizerConfig,
    "collapse": CollapseConfig,
    "gate": FittedGateConfig,
}
"""Settings of a run that are nested in it, and flags like the others."""
NEEDED = {"language_model": "LANGUAGE_MODEL", "layer": "--layer", "text": "--text", "tokens": "--tokens"}


class TrainCommand(FittedGateConfig, CollapseConfig, OptimizerConfig, TextConfig, Command):
    """Fit a layer of a language model as a mixture of experts.

    Flags with commas in their values fit every combination, on one pass over the activations.
    """

    language_model: CliPositionalArg[str | None] = None
    """Hub name or local folder."""
    layer: Several[Annotated[int, Field(ge=0)]] | None = None
    """Which block's MLP, from 0; several with commas."""
    text: str | None = None  # type: ignore[assignment]
    """A .txt, .jsonl, .csv or .parquet file, a folder of them, or a data set on the hub."""
    tokens: Count | None = None
    """Tokens to fit on, such as 20M."""
    method: Several[FittedMethod] = ("mxd",)
    """What to fit; several with commas."""
    num_experts: Several[Count | Literal["auto"]] = ("auto",)
    """N; auto matches the parameters of a transcoder with 32 features per input dimension; several with commas."""
    k: Several[Annotated[int, Field(gt=0)]] = (32,)
    """K, the most experts that are active on a token, of a batch-topk-mxd or jumprelu-mxd on average; a relu-mxd has no
    such limit; several with commas."""
    rank: Annotated[int, Field(gt=0)] | None = None
    """R: of a low-rank-mxd by default a quarter of the output's width, of a tensor-ring-mxd the root of that; of a molt
    the largest, by default half the output's width."""
    smallest_k: Size | None = None
    """Matryoshka-K: fit the layer to answer with its K strongest experts, with half as many, and so on down to this."""
    span: Annotated[int, Field(ge=1, le=256)] | None = None
    """Of a cross-layer-mxd: how many layers' MLPs it writes, from --layer on; by default 2."""
    gate: Several[FittedGate] = ("flat",)  # type: ignore[assignment]
    """How the K of N experts are found. flat: all are scored. product-key: an expert scores the sum of an entry of each
    of two codebooks of about √N. two-level: groups are scored, then the experts of the best of them. Several with
    commas."""
    name: str | None = None
    """Name of the run; by default made of language model, layer and K. What several values are given for is put at its
    end, or where it says so, as in sweep-{method}-k{k}."""
    start: Several[Start] = ("auto",)
    """examples: each expert starts as one token of the text. paper: all starts random. encoder: the shared encoder
    starts at the original MLP's (faithful early, but the routing does little). full: the decoder too (the routing does
    nothing). auto: examples where the method has them, or else paper. Several with commas."""
    learning_rate: Several[Annotated[float, Field(gt=0)]] = (1e-3,)  # type: ignore[assignment]
    """Peak learning rate of AdamW; several with commas. The paper uses 1e-4 over 480M tokens; a few million tokens want
    ten times more."""
    seed: Several[Annotated[int, Field(ge=0, lt=2**31)]] = (0,)
    """Of the starting values; several with commas."""
    text_seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Of the order of the text; by default the first --seed."""
    checkpoint_every: Count = 500_000
    """Tokens between checkpoints."""
    log_every: Count = 50
    """Steps between logged metrics."""
    log: Literal["tensorboard", "trackio", "wandb"] | None = None
    """Where metrics go besides the store: event files in the run's folder, or a run of the same name there. Each needs
    its own package: pip install 'mxd-explorer[tensorboard]'."""
    resume: bool = False
    """Go on where the run stopped, or begin it. With --name alone its own settings are taken."""
    experts: Literal["copied", "spread"] = "copied"
    """Of several processes under torchrun: each has all experts, or, where a layer outgrows a GPU, each a part."""
    plan: bool = False
    """Say what it takes (parameters, memory, arithmetic, expected speed on this device) and do nothing else."""
    processes: Annotated[int, Field(gt=0)] | None = None
    """With --plan: processes under torchrun, each with a device like this one; by default those that there are."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """In which the language model is read. auto: bfloat16 on GPUs, and on processors with units for it; else float32;
    and a run that is gone on with keeps what it was begun in. The layer is fitted in float32 in any case."""

    def run(self) -> int:
        """Fit, and say how well it went."""
        settings = self.settings()
        configs = self._configs(settings.data)  # before the slow imports: what is missing is said at once
        if self.plan:
            return self._plan(configs, settings.data)
        from backend.database import open_database
        from trainer.distributed import joined
        from trainer.fit_plan import Setting, refuse_too_large
        from trainer.heap import keep_freed_memory
        from trainer.language_model import LanguageModel
        from trainer.logs import log_to, no_log
        from trainer.precision import dtype_of, settled, slowness
        from trainer.store import IN_MEMORY
        from trainer.train import train_together

        keep_freed_memory()
        log = no_log if self.log is None else log_to(self.log)
        stop = StopRequest()
        what = configs[0].name if len(configs) == 1 else f"{len(configs)} runs"
        with joined() as ranks, stop.listening(), progress_of(ranks, f"Fitting {what}") as shown:
            device = ranks.device(self.device)
            setting = Setting.of(device, ranks.world, self.experts)
            configs = settled(configs, settings.data, setting.device)
            refuse_too_large(configs, setting)
            dtype = configs[0].language_model_dtype
            assert dtype is not None
            if ranks.is_first and (why := slowness(dtype, setting.device)):
                print(f"mxd: {why}", file=sys.stderr)
            language_model = LanguageModel.load(configs[0].language_model, device, dtype_of(dtype))
            store = open_database(settings.store_url if ranks.is_first else IN_MEMORY)
            results = train_together(
                configs,
                settings.data,
                store,
                language_model,
                resume="if-any" if self.resume else "never",
                ranks=ranks,
                experts=self.experts,
                log=log,
                progress=shown,
                should_stop=stop,
            )
            store.dispose()
        if not ranks.is_first:
            return 0
        documents = [asdict(result) for result in results]
        self.report(documents if len(documents) > 1 else documents[0], "\n".join(map(_in_words, results)))
        if all(result.status == "finished" for result in results):
            return 0
        way = f"mxd train --name {configs[0].name} --resume" if len(configs) == 1 else "the same line and --resume"
        raise Interrupted(f"stopped; go on with {way}", stop.exit_code)

    def _plan(self, configs: list[TrainConfig], data: Path) -> int:
        """Say what it takes.

        Raises:
            UserError: it is too large for the device; after it has been said.
        """
        from trainer.fit_plan import Setting, plan_fit
        from trainer.heap import keep_freed_memory
        from trainer.precision import settled

        keep_freed_memory()  # as the fit that is planned will
        processes = self.processes or int(os.environ.get("WORLD_SIZE", "1"))
        setting = Setting.of(self.device, processes, self.experts)
        plan = plan_fit(settled(configs, data, setting.device), setting)
        self.report(asdict(plan), plan_in_words(plan))
        if plan.refusal is not None:
            raise UserError(plan.refusal)
        return 0

    def _configs(self, data: Path) -> list[TrainConfig]:
        """What was asked for: all of it, or what differs from the run that is taken up again."""
        chosen = combinations({setting: getattr(self, setting) or (None,) for setting in SHORT})
        saved = self._saved(data) if self.resume and len(chosen) == 1 else None
        if saved is not None:
            return [TrainConfig.model_validate(_merged(saved, self._flags(chosen[0], self.model_fields_set)))]
        missing = [word for field, word in NEEDED.items() if getattr(self, field) is None]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given; see mxd train --help.")
        varied = [setting for setting in SHORT if len(getattr(self, setting)) > 1]
        fields = set(type(self).model_fields)
        return [
            TrainConfig.model_validate(
                {**self._flags(one, fields), "name": run_name(self._pattern(), one, varied), **self._order(one)}
            )
            for one in chosen
        ]

    def _saved(self, data: Path) -> dict[str, Any] | None:
        """The settings of the run that is taken up again; None where it is new."""
        from trainer.run import RUN_FILE, Run, runs_folder

        folder = runs_folder(data) / str(self.name)
        return Run.load(folder, data).config.model_dump() if (folder / RUN_FILE).is_file() else None

    def _order(self, chosen: dict[str, Any]) -> dict[str, int]:
        """The seed of the text's order, where it is not the run's own: those that are fitted together share one."""
        wanted = self.seed[0] if self.text_seed is None else self.text_seed
        return {} if wanted == chosen["seed"] else {"text_seed": wanted}

    def _flags(self, chosen: dict[str, Any], fields: set[str]) -> dict[str, Any]:
        """Some of the flags, nested as in ``TrainConfig``; ``chosen`` has one value of those that may have several."""

        def part(kind: type[BaseModel]) -> dict[str, Any]:
            return {name: chosen.get(name, getattr(self, name)) for name in kind.model_fields if name in fields}

        flags = {name: value for name, value in part(TrainConfig).items() if name not in PARTS}
        if flags.get("language_model") and Path(flags["language_model"]).is_dir():
            # The run is used from other folders than the one that this is typed in.
            flags["language_model"] = str(Path(flags["language_model"]).resolve())
        if "dtype" in fields and self.dtype != "auto":
            flags["language_model_dtype"] = self.dtype
        if flags.get("num_experts") == "auto":
            flags["num_experts"] = None
        if chosen["method"] not in WITH_RANK and not WITH_RANK.isdisjoint(self.method):
            flags.pop("rank", None)  # others that are fitted with it have none
        if chosen["method"] in NO_TOP_K and not NO_TOP_K.issuperset(self.method):
            flags.pop("smallest_k", None)
        if chosen["method"] != "cross-layer-mxd" and "cross-layer-mxd" in self.method:
            flags.pop("span", None)
        parts = {name: part(kind) for name, kind in PARTS.items()}
        if chosen["gate"] != "two-level" and "two-level" in self.gate:
            parts["gate"] = {"gate": chosen["gate"]}  # of the others that are fitted with it, none has groups
        return {**flags, **parts}

    def _pattern(self) -> str:
        """Of the runs' names: what was asked for, or the language model with what every name says."""
        if self.name is not None:
            return self.name
        source = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(self.language_model)).name).strip("-._") or "run"
        method = "" if self.method == ("mxd",) else "-{method}"
        return f"{source.lower()}-l{{layer}}{method}-k{{k}}"


def _merged(saved: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """``saved`` with ``flags`` in the place of what they name, one level of nesting deep."""
    nested = {name: {**saved[name], **value} for name, value in flags.items() if isinstance(value, dict)}
    return {**saved, **flags, **nested}


def _in_words(result: TrainResult) -> str:
    return (
        f"{result.run}: {result.tokens:,} tokens, normalised MSE {result.normalised_mse:.4f}, "
        f"{result.dead_share:.1%} of the experts dead, {result.tokens_per_second:,.0f} tokens/s"
    )
