"""The one loop that fits layers: activations in, run directories and their metrics out.

Runs that want the same text in the same order are fitted on one pass over it, whatever their method, K, N, seed or
layer of the language model. Each keeps its own checkpoints and takes no batch twice, so after an interruption those
that are behind catch up, and each ends as if it had been fitted alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine

from trainer.activations import Stream, Window, batches, windows
from trainer.config import TrainConfig
from trainer.distributed import ALONE, Ranks
from trainer.errors import UserError
from trainer.files import only_one
from trainer.fitting import Experts, Fit, layer_config_of
from trainer.language_model import Capture, LanguageModel
from trainer.logs import OpenLog, no_log
from trainer.ongoing import DivergedError, OngoingRun, Resume, TrainResult, refuse_others
from trainer.precision import written_down
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.run import LOCK_FILE, resume_command, runs_folder
from trainer.starts import needs_sample
from trainer.text import refuse_short

__all__ = ["Resume", "TrainResult", "train", "train_together"]


def train(
    config: TrainConfig,
    data: Path,
    store: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    log: OpenLog = no_log,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> TrainResult:
    """Fit a layer, or go on fitting it, until its tokens are spent or ``should_stop`` says so.

    Raises:
        UserError: the run exists (and ``resume`` is ``never``), is being fitted elsewhere, was fitted with other
            settings, or the text is too short.
    """
    (result,) = train_together(
        [config], data, store, language_model, resume=resume, log=log, progress=progress, should_stop=should_stop
    )
    return result


def train_together(
    configs: Sequence[TrainConfig],
    data: Path,
    store: Engine,
    language_model: LanguageModel,
    *,
    resume: Resume = "never",
    ranks: Ranks = ALONE,
    experts: Experts = "copied",
    log: OpenLog = no_log,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> list[TrainResult]:
    """Fit several layers on one pass over the activations, as ``train`` fits one; results come in the same order.

    Several ranks share every step and end with the same weights as one process, up to rounding; the first alone writes.
    Metrics go to the store and, from the first rank, to ``log``.
    Folder and store must be where all of them can read; a rank that is not the first may be given a store of its own,
    which is thrown away.

    Raises:
        DivergedError: one of them has; the others are stopped, and can go on without it.
        UserError: as ``train``, for any of them; they do not want the same text in the same order; two have one name.
    """
    _see_that_names_differ(configs)
    _refuse_unfit(configs, language_model)
    configs = [written_down(config, language_model.dtype) for config in configs]
    stream = Stream.of(configs)
    # All layers are made before the first folder is: what cannot be built leaves nothing behind.
    stream.plan.share(ranks)
    begun = _first_window(configs, stream, language_model)
    sample = begun.captured if begun is not None else {}
    fits = [
        Fit.start(config, language_model, stream.plan.steps, ranks, experts, _sample(sample, config))
        for config in configs
    ]
    with ExitStack() as locks:
        for config in configs if ranks.is_first else ():
            folder = runs_folder(data) / config.name
            locks.enter_context(only_one(folder / LOCK_FILE, f"The run {config.name} is being fitted"))
        for config in configs:
            refuse_others(config, data, resume)
        ranks.wait()  # nobody makes a folder before all have seen that there is none
        if not ranks.is_first:
            ranks.wait()  # the first makes them
        runs = [
            OngoingRun.open(config, fit, data, store, language_model, log if ranks.is_first else no_log)
            for config, fit in zip(configs, fits, strict=True)
        ]
        if ranks.is_first:
            ranks.wait()
        try:
            first = min(run.fit.taken for run in runs)
            found = batches(language_model, stream, first, ranks, begun if ranks.is_alone else None)
            del begun, sample  # so that it goes when its tokens have been taken
            _go(runs, enumerate(found, start=first), stream, ranks, progress, should_stop)
            return [run.leave() for run in runs]
        except UserError as error:
            _leave_after(error, runs)
            raise


def _first_window(configs: Sequence[TrainConfig], stream: Stream, language_model: LanguageModel) -> Window | None:
    """The whole first window, for starts that look at activations; a text that is too short is refused here."""
    refuse_short(stream.text, language_model.tokenizer, stream.plan.tokens)
    return next(windows(language_model, stream)) if any(map(needs_sample, configs)) else None


def _sample(captured: Mapping[int, Capture], config: TrainConfig) -> Capture | None:
    return Capture.spanning(captured, config.layers) if captured else None


def _go(
    runs: Sequence[OngoingRun],
    found: Iterable[tuple[int, Mapping[int, Capture]]],
    stream: Stream,
    ranks: Ranks,
    progress: Progress,
    should_stop: ShouldStop,
) -> None:
    """Take the steps that are left, each with its number from 0."""
    for taken, batch in found:
        behind = [run for run in runs if run.fit.taken == taken]
        for run in behind:
            run.step(Capture.spanning(batch, run.run.config.layers))
        progress((taken + 1) * stream.plan.batch, stream.plan.tokens, _note(runs))
        if ranks.any(should_stop()):
            return
        for run in behind:
            run.save_if_due()


def _leave_after(error: UserError, runs: Sequence[OngoingRun]) -> None:
    """Fail all runs; where one has diverged, that one, and stop the others, unless they have too."""
    for run in runs:
        try:
            if not isinstance(error, DivergedError) or run.run.name == error.run:
                raise error
            run.leave()
        except UserError as its_own:
            run.mark("failed", str(its_own))


def _note(runs: Sequence[OngoingRun]) -> str:
    measured = [run.last.normalised_mse for run in runs if not math.isnan(run.last.normalised_mse)]
    if not measured:
        return ""
    if len(runs) == 1:
        return f"normalised MSE {measured[0]:.4f}"
    return f"normalised MSE {min(measured):.4f} to {max(measured):.4f}"


def _refuse_unfit(configs: Sequence[TrainConfig], language_model: LanguageModel) -> None:
    for config in configs:
        layer_config_of(config, language_model.anatomy)  # what does not go together is said before any text is read
        if config.began_as:
            raise UserError(
                f"The run {config.name} is fine-tuned with other layers in place, not by itself; go on with "
                f"{resume_command(config.name, config.began_as)}."
            )


def _see_that_names_differ(configs: Sequence[TrainConfig]) -> None:
    (name, times), *_ = Counter(config.name for config in configs).most_common(1)
    if times > 1:
        raise UserError(f"{times} runs would be named {name}; give each a name of its own.")
