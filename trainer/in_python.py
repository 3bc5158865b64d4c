"""Fitting and indexing in one call each, for scripts and notebooks; the command line has more settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from trainer.config import IndexConfig, Method, OptimizerConfig, TextConfig, TrainConfig
from trainer.indexing import IndexResult, build_index
from trainer.labelling import label_experts
from trainer.language_model import LanguageModel
from trainer.ongoing import Resume
from trainer.progress import Progress, silent
from trainer.registration import register_run
from trainer.run import Run, runs_folder
from trainer.store import open_store, sqlite_url
from trainer.train import train


def fit(
    language_model: LanguageModel,
    layer: int,
    text: TextConfig | str,
    tokens: int | str,
    *,
    name: str,
    method: Method = "mxd",
    k: int = 32,
    num_experts: int | None = None,
    smallest_k: int | None = None,
    span: int | None = None,
    optimizer: OptimizerConfig = OptimizerConfig(),  # noqa: B008 - it cannot be changed
    seed: int = 0,
    resume: Resume = "never",
    data: Path | str = "data",
    store: str | None = None,
    progress: Progress = silent,
) -> Run:
    """Fit a layer to the MLP of a block, and keep it as a run.

    Args:
        language_model: what is explained.
        layer: which block's MLP, from 0.
        text: a file, folder or data set on the hub; or, with its context and column, a ``TextConfig``.
        tokens: to fit on, as a number or as ``20M``.
        name: of the run and its folder.
        method: what to fit.
        k: K, the most experts that are active on a token.
        num_experts: N; by default as many as match a transcoder of 32 I features.
        smallest_k: fit the layer to be used with fewer experts of a token too, down to so many.
        span: of a cross-layer-mxd, how many layers it writes, from ``layer`` on.
        optimizer: learning rate, its course, tokens a step.
        seed: of the starting values and the order of the text.
        resume: ``if-any`` goes on where a run of this name was stopped.
        data: folder of the runs and, by default, of the store.
        store: SQLAlchemy URL of another store.
        progress: told how far it is.

    Raises:
        UserError: the run exists and ``resume`` is ``never``, the layer does not, or the text is too short.
    """
    settings = {"name": name, "language_model": language_model.source, "layer": layer, "tokens": tokens}
    config = TrainConfig.model_validate(
        {
            **settings,
            "text": text if isinstance(text, TextConfig) else TextConfig(text=text),
            "method": method,
            "k": k,
            "num_experts": num_experts,
            "smallest_k": smallest_k,
            "span": span,
            "optimizer": optimizer,
            "seed": seed,
        }
    )
    with _opened(store, data) as engine:
        train(config, Path(data), engine, language_model, resume=resume, progress=progress)
    return Run.load(runs_folder(Path(data)) / name)


def index(
    run: Run,
    language_model: LanguageModel,
    text: TextConfig | str,
    tokens: int | str,
    *,
    data: Path | str = "data",
    store: str | None = None,
    progress: Progress = silent,
) -> IndexResult:
    """Read text, and keep statistics, contexts and automatic labels of every expert; replaces the index before.

    Args:
        run: what is indexed; the store need not know it yet.
        language_model: that it was fitted to.
        text: as in ``fit``; a plain name is read in sequences as long as those that the run was fitted on.
        tokens: to read, as a number or as ``1M``.
        data: folder whose store is written.
        store: SQLAlchemy URL of another store.
        progress: told how far it is.

    Raises:
        UserError: the text is too short, or another process is indexing the run.
    """
    source = text if isinstance(text, TextConfig) else TextConfig(text=text, context=run.config.text.context)
    config = IndexConfig.model_validate({"text": source, "tokens": tokens})
    with _opened(store, data) as engine:
        register_run(run, engine)
        result = build_index(run, config, language_model, engine, progress=progress)
        label_experts(run, engine)
    return result


@contextmanager
def _opened(store: str | None, data: Path | str) -> Iterator[Engine]:
    engine = open_store(store or sqlite_url(Path(data)))
    try:
        yield engine
    finally:
        engine.dispose()
