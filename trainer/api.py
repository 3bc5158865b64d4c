"""Training and indexing for scripts and notebooks. The command line has more settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from mxd.trainer.analysis.indexing import IndexResult, build_index
from mxd.trainer.analysis.labelling import label_experts
from mxd.trainer.config import IndexConfig, Method, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.run import Run, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.training.train import train_layer
from mxd.trainer.training.training_run import Resume
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks


def train(
    language_model: LanguageModel,
    layer: int,
    text: TextConfig | str,
    tokens: int | str,
    *,
    name: str,
    method: Method = "mxd",
    k: int = 32,
    num_experts: int | None = None,
    min_k: int | None = None,
    optimizer: OptimizerConfig = OptimizerConfig(),  # noqa: B008 - immutable
    seed: int = 0,
    resume: Resume = "never",
    data: Path | str = "data",
    database: str | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Run:
    """Train a layer to replace an MLP, and save it as a run.

    Args:
        language_model: the model whose MLP is replaced.
        layer: layer index of the MLP.
        text: a file, a folder or a Hub dataset; or a ``TextConfig`` for its column and context length.
        tokens: number of training tokens, such as ``20_000_000`` or ``"20M"``.
        name: name of the run and of its folder.
        method: kind of layer.
        k: number K of active experts per token.
        num_experts: number of experts N. By default the layer has as many parameters as a transcoder of 32 I features.
        min_k: also train the layer for smaller K, down to this value.
        optimizer: learning rate and its schedule, and tokens per step.
        seed: seed of the initial weights and the order of the text.
        resume: ``"if-any"`` resumes an interrupted run of this name.
        data: folder of the runs and, by default, of the database.
        database: SQLAlchemy URL of another database.
        callbacks: progress reports and cancellation.

    Raises:
        UserError: the run exists and ``resume`` is ``"never"``, there is no such layer, or the text is too short.
    """
    config = TrainConfig.model_validate(
        {
            "name": name,
            "language_model": language_model.source,
            "layer": layer,
            "tokens": tokens,
            "text": text if isinstance(text, TextConfig) else TextConfig(dataset=text),
            "method": method,
            "k": k,
            "num_experts": num_experts,
            "min_k": min_k,
            "optimizer": optimizer,
            "seed": seed,
        }
    )
    with _opened(database, data) as engine:
        train_layer(config, Path(data), engine, language_model, resume=resume, callbacks=callbacks)
    return Run.load(runs_folder(Path(data)) / name)


def index(
    run: Run,
    language_model: LanguageModel,
    text: TextConfig | str,
    tokens: int | str,
    *,
    data: Path | str = "data",
    database: str | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> IndexResult:
    """Collect statistics, top examples and automatic labels of every expert. Replaces a previous index.

    Args:
        run: the run to index. It is added to the database if missing.
        language_model: the model that the run was trained on.
        text: as in ``train``. By default the context length is that of training.
        tokens: number of tokens to read, such as ``1_000_000`` or ``"1M"``.
        data: folder of the database.
        database: SQLAlchemy URL of another database.
        callbacks: progress reports and cancellation.

    Raises:
        UserError: the text is too short, or another process is indexing the run.
    """
    source = (
        text
        if isinstance(text, TextConfig)
        else TextConfig(
            dataset=text, context_length=run.config.text.context_length, start_token=run.config.text.start_token
        )
    )
    config = IndexConfig.model_validate({"text": source, "tokens": tokens})
    with _opened(database, data) as engine:
        register_run(run, engine)
        result = build_index(run, config, language_model, engine, callbacks=callbacks)
        label_experts(run, engine)
    return result


@contextmanager
def _opened(database: str | None, data: Path | str) -> Iterator[Engine]:
    engine = open_trainer_database(database or sqlite_url(Path(data)))
    try:
        yield engine
    finally:
        engine.dispose()
