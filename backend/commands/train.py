"""``mxd train``: fit a layer, or go on fitting it."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import Interrupted, StopRequest, progress
from trainer.config import Count, Method, OptimizerConfig, Start, TextConfig, TrainConfig
from trainer.errors import UserError

if TYPE_CHECKING:
    from trainer.train import TrainResult

NEEDED = {"language_model": "LANGUAGE_MODEL", "layer": "--layer", "text": "--text", "tokens": "--tokens"}


class TrainCommand(OptimizerConfig, TextConfig, Command):
    """Fit a layer of a language model as a mixture of experts."""

    language_model: CliPositionalArg[str | None] = None
    """Hub name or local folder."""
    layer: Annotated[int | None, Field(ge=0)] = None
    """Which block's MLP, from 0."""
    text: str | None = None  # type: ignore[assignment]
    """A .txt, .jsonl, .csv or .parquet file, a folder of them, or a data set on the hub."""
    tokens: Count | None = None
    """Tokens to fit on, such as 20M."""
    method: Method = "mxd"
    """What to fit."""
    num_experts: Count | Literal["auto"] = "auto"
    """N; auto matches the parameters of a transcoder with 32 features per input dimension."""
    k: Annotated[int, Field(gt=0)] = 32
    """K, the most experts that are active on a token; a relu-mxd has no such limit."""
    rank: Annotated[int, Field(gt=0)] | None = None
    """R, of a low-rank-mxd alone; by default a quarter of the output's width."""
    name: str | None = None
    """Name of the run; by default made of language model, layer and K."""
    start: Start = "paper"
    """paper: the shared encoder starts random. encoder: it starts at the original MLP's (more faithful early, steers
    less)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the starting values and the order of the text."""
    checkpoint_every: Count = 500_000
    """Tokens between checkpoints."""
    log_every: Count = 50
    """Steps between logged metrics."""
    resume: bool = False
    """Go on where the run stopped, or begin it. With --name alone its own settings are taken."""
    device: str = "auto"
    """Where the language model runs: auto, cpu or cuda."""

    def run(self) -> int:
        """Fit, and say how well it went."""
        from backend.database import open_database
        from trainer.language_model import LanguageModel
        from trainer.train import train

        settings = self.settings()
        config = self._config(settings.data)
        language_model = LanguageModel.load(config.language_model, self.device)
        store = open_database(settings.store_url)
        stop = StopRequest()
        with stop.listening(), progress(f"Fitting {config.name}") as shown:
            result = train(
                config,
                settings.data,
                store,
                language_model,
                resume="if-any" if self.resume else "never",
                progress=shown,
                should_stop=stop,
            )
        store.dispose()
        self.report(asdict(result), _in_words(result))
        if result.status == "finished":
            return 0
        raise Interrupted(f"stopped; go on with mxd train --name {config.name} --resume", stop.exit_code)

    def _config(self, data: Path) -> TrainConfig:
        """What was asked for: all of it, or what differs from the run that is taken up again."""
        from trainer.run import RUN_FILE, Run, runs_folder

        resumed = self.resume and self.name is not None and (runs_folder(data) / self.name / RUN_FILE).is_file()
        if resumed:
            assert self.name is not None
            saved = Run.load(runs_folder(data) / self.name, data).config.model_dump()
            return TrainConfig.model_validate(_merged(saved, self._flags(self.model_fields_set)))
        missing = [word for field, word in NEEDED.items() if getattr(self, field) is None]
        if missing:
            raise UserError(f"{', '.join(missing)} must be given; see mxd train --help.")
        return TrainConfig.model_validate({**self._flags(set(type(self).model_fields)), "name": self._name()})

    def _flags(self, fields: set[str]) -> dict[str, Any]:
        """Some of the flags, nested as in ``TrainConfig``."""

        def part(kind: type[BaseModel]) -> dict[str, Any]:
            return {name: getattr(self, name) for name in kind.model_fields if name in fields}

        flags = {name: value for name, value in part(TrainConfig).items() if name not in ("text", "optimizer")}
        if flags.get("num_experts") == "auto":
            flags["num_experts"] = None
        return {**flags, "text": part(TextConfig), "optimizer": part(OptimizerConfig)}

    def _name(self) -> str:
        if self.name is not None:
            return self.name
        source = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(self.language_model)).name).strip("-._") or "run"
        method = "" if self.method == "mxd" else f"-{self.method}"
        return f"{source}-l{self.layer}{method}-k{self.k}".lower()


def _merged(saved: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """``saved`` with ``flags`` in the place of what they name, one level of nesting deep."""
    nested = {name: {**saved[name], **value} for name, value in flags.items() if isinstance(value, dict)}
    return {**saved, **flags, **nested}


def _in_words(result: TrainResult) -> str:
    return (
        f"{result.run}: {result.tokens:,} tokens, normalised MSE {result.normalised_mse:.4f}, "
        f"{result.dead_share:.1%} of the experts dead, {result.tokens_per_second:,.0f} tokens/s"
    )
