"""Measurements of a run on a dataset: the index of its experts, and its evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.datasets import Dataset, Source, open_dataset
from mxd.api.layer import Layer
from mxd.api.loading import as_layer, database_url, own_data_folder
from mxd.api.models import language_model_of
from mxd.api.training import progress_bar
from mxd.backend.database.engine import opened
from mxd.trainer.analysis.indexing import IndexResult, build_index
from mxd.trainer.analysis.labelling import label_experts
from mxd.trainer.config import EvaluateConfig, IndexConfig, TextConfig
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.evaluation.evaluate import Evaluator, check_held_out, is_training_text
from mxd.trainer.evaluation.evaluate import evaluate as evaluate_run
from mxd.trainer.evaluation.results import Evaluation
from mxd.trainer.evaluation.save import write_evaluation
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.utils.callbacks import Callbacks

AnyRun = Layer | Run | str | Path
"""A trained layer, or the name or folder of a run."""


def index(
    run: AnyRun,
    dataset: Dataset,
    *,
    tokens: int | str | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> IndexResult:
    """Collect statistics, top examples and automatic labels of every expert. Replaces a previous index.

    >>> mxd.index("my-run", texts, tokens="2k", model=model, progress=False).tokens
    2000

    Args:
        run: the run to index, or its name.
        dataset: as in ``train``.
        tokens: number of tokens to read. Default: the whole dataset.
        model: the model that the run was trained on. Default: the one it was trained on in this process, or the one
            that its settings name.
        tokenizer: its tokenizer. Default: that of the run.
        database: SQLAlchemy URL. Default: ``MXD_DATABASE``, or ``mxd.sqlite`` in the run's data folder.
        progress: show a progress bar.
        settings: other fields of ``IndexConfig`` and ``TextConfig``, such as ``top_examples=50``.

    Raises:
        UserError: the dataset is too short, or another process is indexing the run.
    """
    layer = as_layer(run)
    source, keywords = _open(layer, dataset, tokens, settings)
    config = IndexConfig.from_keywords(source._asdict(), keywords)
    with opened(database_url(layer.run, database)) as engine, language_model_of(layer, model, tokenizer) as wrapped:
        register_run(layer.run, engine)
        with progress_bar(f"Indexing {layer.name}", progress) as show:
            result = build_index(layer.run, config, wrapped, engine, callbacks=Callbacks(show))
        label_experts(layer.run, engine)
    return result


def evaluate(
    run: AnyRun,
    dataset: Dataset,
    *,
    tokens: int | str | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    seen_text: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Evaluation:
    """Measure loss increase, reconstruction, routing share and expert health on held-out text.

    >>> held_out = ["the red fox sat and sang, very old and very blue."] * 40
    >>> result = mxd.evaluate("my-run", held_out, model=model, resamples=100, prompts=2, progress=False)
    >>> result.loss_increase.low <= result.loss_increase.value <= result.loss_increase.high
    True

    The dashboard and the report show the result. Arguments are those of ``index``, and:

    Args:
        seen_text: evaluate even on the text that the run was trained on; the result says so.
        settings: other fields of ``EvaluateConfig`` and ``TextConfig``, such as ``resamples=200`` or ``k=8``.

    Raises:
        UserError: the dataset is too short, or the run was trained on it.
    """
    layer = as_layer(run)
    source, keywords = _open(layer, dataset, tokens, settings)
    config = EvaluateConfig.from_keywords(source._asdict(), keywords)
    if not seen_text:
        check_held_out(layer.name, source.text, layer.run.config.text)
    with opened(database_url(layer.run, database)) as engine, language_model_of(layer, model, tokenizer) as wrapped:
        register_run(layer.run, engine)
        with progress_bar(f"Evaluating {layer.name}", progress) as show:
            evaluator = Evaluator.open(config, wrapped, Callbacks(show))
            measurement = evaluate_run(evaluator, layer.run, is_training_text(source.text, layer.run.config.text))
        weights = weights_digest([layer.run])
        write_evaluation(engine, measurement, layer.name, config, fingerprint(source.text), weights)
    assert isinstance(measurement.result, Evaluation)
    return measurement.result


def _open(
    layer: Layer, dataset: Dataset, tokens: int | str | None, settings: dict[str, Any]
) -> tuple[Source, dict[str, Any]]:
    """Open a dataset with the context length and start token of training; return the settings that remain."""
    trained = layer.run.config.text
    text_fields = {"context_length": trained.context_length, "start_token": trained.start_token}
    text_fields |= {key: value for key, value in settings.items() if key in TextConfig.model_fields}
    source = open_dataset(dataset, tokens, own_data_folder(layer.run), layer.run.tokenizer, text_fields)
    return source, {key: value for key, value in settings.items() if key not in text_fields}
