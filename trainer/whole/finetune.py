"""Fine-tuning several runs together: text in, new run directories out. The runs that they begin as stay as they are.

Each new run keeps checkpoints of its own, as one that is fitted alone. They belong together: taken up again, all go on
from the newest step that all of them have.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from sqlalchemy import Engine
from torch import Tensor

from trainer.activations import WindowPlan
from trainer.config import CollapseConfig, ImportedMethod, TrainConfig
from trainer.errors import UserError
from trainer.files import only_one
from trainer.fitting import Fit
from trainer.in_place import names_of, refuse_apart
from trainer.language_model import LanguageModel
from trainer.layers.registry import load_layer
from trainer.logs import no_log
from trainer.ongoing import OngoingRun, Resume, TrainResult, refuse_others
from trainer.precision import written_down
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.routing import refuse_several_layers
from trainer.run import LOCK_FILE, Run, checkpoints, runs_folder, step_of
from trainer.text import refuse_short, sequences
from trainer.whole.config import FinetuneConfig
from trainer.whole.joined import Joined, Losses


@dataclass(frozen=True)
class FinetuneResult:
    """What ``mxd finetune`` reports."""

    runs: tuple[TrainResult, ...]
    kl_first: float | None
    """Divergence in nats on this process's first step, so before that step; None where no step was left to take."""
    kl_last: float | None
    """Mean over its last steps, at most ``log_every`` of them."""


def finetune(
    runs: Sequence[Run],
    config: FinetuneConfig,
    data: Path,
    store: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> FinetuneResult:
    """Move runs together, each in its layer, until the tokens are spent or ``should_stop`` says so.

    Raises:
        DivergedError: one of them has.
        UserError: the runs cannot be fine-tuned together, a new run exists (and ``resume`` is ``never``), is being
            fitted elsewhere or was begun with other settings, or the text is too short.
    """
    runs = sorted(runs, key=lambda run: run.config.layer)
    configs = [written_down(one, language_model.dtype) for one in configs_of(runs, config)]
    refuse_short(config.text, language_model.tokenizer, WindowPlan.of(configs[0]).tokens)
    with ExitStack() as locks:
        folders = [runs_folder(data) / one.name for one in configs]
        for one, folder in zip(configs, folders, strict=True):
            locks.enter_context(only_one(folder / LOCK_FILE, f"The run {one.name} is being fitted"))
            refuse_others(one, data, resume)
        go_back_together(folders)
        fits = [fit_of(run, one, language_model) for run, one in zip(runs, configs, strict=True)]
        ongoing = [
            OngoingRun.open(one, fit, data, store, language_model, no_log)
            for one, fit in zip(configs, fits, strict=True)
        ]
        try:
            _see_that_all_are_at_one_step(ongoing)
            losses = _go(ongoing, config, language_model, progress, should_stop)
            results = tuple(run.leave() for run in ongoing)
        except UserError as error:
            for run in ongoing:
                run.mark("failed", str(error))
            raise
    last = losses[-config.log_every :]
    return FinetuneResult(results, losses[0] if losses else None, sum(last) / len(last) if last else None)


def configs_of(runs: Sequence[Run], config: FinetuneConfig) -> list[TrainConfig]:
    """The settings of the new runs, in the order of ``runs``.

    Raises:
        UserError: two runs are of one layer, or of different language models, or one cannot be fitted further, or the
            new runs' names do not differ.
    """
    _refuse_unfit(runs)
    named = names_of(runs, config.name)
    return [_config_of(run, name, runs, config) for run, name in zip(runs, named, strict=True)]


def _config_of(run: Run, name: str, runs: Sequence[Run], config: FinetuneConfig) -> TrainConfig:
    others = tuple(other.name for other in runs if other is not run)
    kept = run.config.model_dump(exclude={"language_model_dtype", "origin"})
    changed = {
        "name": name,
        "language_model": run.language_model_source,
        "num_experts": run.layer_config.num_experts,
        "collapse": CollapseConfig(),
        "protected": None,  # fitting on can undo it
        "began_as": (run.name, *others),
        "text_seed": None if config.seed == run.config.seed else config.seed,
        **config.model_dump(exclude={"name", "seed"}),
    }
    return TrainConfig.model_validate(kept | changed)


def _refuse_unfit(runs: Sequence[Run]) -> None:
    refuse_apart(runs)
    for run in runs:
        if run.config.method in get_args(ImportedMethod):
            raise UserError(f"{run.name} is a {run.config.method}, which cannot be fitted here; leave it out.")
        refuse_several_layers(run, "Fine-tuning")


def go_back_together(folders: Sequence[Path]) -> None:
    """Throw away those checkpoints that not all runs have: a process that was killed may have written some of them."""
    found = [{step_of(path): path for path in checkpoints(folder)} for folder in folders]
    common = set.intersection(*(set(steps) for steps in found))
    for steps in found:
        for step in steps.keys() - common:
            shutil.rmtree(steps[step])


def fit_of(run: Run, config: TrainConfig, language_model: LanguageModel) -> Fit:
    """A fit that begins at a copy of a run's layer."""
    device = language_model.device_of(config.layer)
    layer = load_layer(run.weights_folder).to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0, weight_decay=0.0, fused=True)
    never_active_N = torch.zeros(layer.config.num_experts, dtype=torch.int64, device=device)
    return Fit(layer, optimizer, config, WindowPlan.of(config).steps, never_active_N)


def _see_that_all_are_at_one_step(ongoing: Sequence[OngoingRun]) -> None:
    steps = {run.run.name: run.fit.taken for run in ongoing}
    if len(set(steps.values())) > 1:
        behind = min(steps, key=lambda name: steps[name])
        raise UserError(
            f"A checkpoint of {behind} is damaged, and the others have gone on from a later one; remove the runs "
            f"{', '.join(steps)} with mxd remove and fine-tune again."
        )


def _go(
    ongoing: Sequence[OngoingRun],
    config: FinetuneConfig,
    language_model: LanguageModel,
    progress: Progress,
    should_stop: ShouldStop,
) -> list[float]:
    """Take the steps that are left; the divergence of each, in nats."""
    joined = Joined(language_model, [run.fit for run in ongoing], config.next_token_weight)
    plan, found = ongoing[0].plan, []
    for ids_BT in _steps(ongoing[0].run.config, plan, language_model, ongoing[0].fit.taken):
        if should_stop():
            break
        losses = joined.step(ids_BT)
        found.append(losses.kl.item())
        for run in ongoing:
            run.log_if_due()
        progress(ongoing[0].fit.tokens, plan.tokens, _note(losses))
        for run in ongoing:
            run.save_if_due()
    return found


def _steps(config: TrainConfig, plan: WindowPlan, language_model: LanguageModel, taken: int) -> Iterator[Tensor]:
    """Sequences [B, T] of each step that is left."""
    text = sequences(
        config.text,
        language_model.tokenizer,
        tokens=plan.tokens,
        seed=config.order_seed,
        order="shuffled",
        skip=taken * plan.sequences,
    )
    while rows := list(islice(text, plan.sequences)):
        yield torch.from_numpy(np.stack(rows)).long()


def _note(losses: Losses) -> str:
    return f"KL {losses.kl.item():.4f} nats"
