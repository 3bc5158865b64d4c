"""Runs in Python: trained, fine-tuned, imported, listed, and served from a thread of a script or notebook."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import quote

from pydantic import ValidationError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.datasets import Dataset, Source, open_dataset
from mxd.api.layer import AnyRun, Layer, as_layer, language_model_of, load, on_disk
from mxd.api.loading import data_folder, database_in, database_url, own_data_folder
from mxd.api.models import borrowed
from mxd.backend.api.app import create_protected_app
from mxd.backend.api.connections import limited_server
from mxd.backend.database.engine import opened
from mxd.backend.settings import Settings, listen, url_of
from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.config.base import describe_invalid
from mxd.trainer.config.layer import Method
from mxd.trainer.config.training import FinetuneConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.formats.import_run import import_run as import_layer
from mxd.trainer.storage.run import run_names, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.training.finetune import finetune as finetune_runs
from mxd.trainer.training.train import MetricLog, Resume, train_layers
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks, terminal_bar

Callback = Callable[[Mapping[str, float]], object]
"""Called with the metrics of each logged step. Training stops, and can be resumed, if it returns True."""

CONTEXT_LENGTH: int = TextConfig.model_fields["context_length"].default


def progress_bar(
    title: str, is_shown: bool, unit: str = "tokens"
) -> AbstractContextManager[Callable[[int, int, str], None]]:
    """Yield a function that shows the units done, their total and a note."""
    return terminal_bar(title, unit) if is_shown else nullcontext(NO_CALLBACKS.on_progress)


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int,
    tokens: int | str | None = None,
    name: str | None = None,
    method: Method = "mxd",
    num_experts: int | None = None,
    k: int = 32,
    language_model: str | None = None,
    resume: Resume = "never",
    data: str | Path | None = None,
    database: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    **settings: Any,
) -> Layer:
    """Train a layer to replace an MLP, and save it as a run in the data folder. The model is left as it was.

    >>> sizes = {"num_experts": 40, "k": 4, "context_length": 16}
    >>> run = mxd.train(model, tokenizer, texts, layer=1, tokens="2k", name="small", progress=False, **sizes)
    >>> run.run.config.tokens
    2000

    Args:
        model: Hugging Face causal language model.
        tokenizer: its tokenizer.
        dataset: file, folder or Hub dataset by name; or an iterable of texts, of rows with ``text`` or ``input_ids``,
            or of token ids. Token ids are packed as they are; a start token precedes each text.
        layer: index of the block whose MLP is replaced.
        tokens: number of training tokens, such as ``"20M"``. Default: the whole dataset, once.
        name: name of the run. Default: made of the model, layer, method and K.
        method: ``mxd``, ``transcoder``, ``skip-transcoder`` or another kind of layer.
        num_experts: N. Default: as many parameters as a transcoder of 32 features per input value.
        k: K, active experts per token.
        language_model: name, folder or GGUF file under which the dashboard loads the model. Default:
            ``model.name_or_path``.
        resume: ``"if-any"`` continues an interrupted run of this name, or returns a finished one.
        data: data folder. Default: ``MXD_DATA``, or ``data``.
        database: SQLAlchemy URL. Default: ``MXD_DATABASE``, or ``mxd.sqlite`` in the data folder.
        callbacks: called with the metrics of each logged step; one that returns True stops training.
        progress: show a progress bar.
        settings: other fields of ``TrainConfig`` and of the configs in it, such as ``learning_rate=1e-3``,
            ``context_length=64`` or ``seed=1``.

    Raises:
        UserError: the run exists and ``resume`` is ``"never"``, there is no such layer, a setting is invalid, or the
            dataset is too short.
    """
    folder = data_folder(data)
    source = language_model or model.name_or_path or type(model).__name__
    model_config, names = model.config.get_text_config(), ("max_position_embeddings", "n_positions")
    limits = (getattr(model_config, name, None) for name in names)
    limit = next((int(each) for each in limits if each), CONTEXT_LENGTH)
    text_fields = {key: value for key, value in settings.items() if key in TextConfig.model_fields}
    text_fields = {"context_length": min(CONTEXT_LENGTH, limit), **text_fields}
    text, count = open_dataset(dataset, tokens, folder, tokenizer, text_fields)
    fixed = {"language_model": source, "layer": layer, "text": text, "tokens": count, "method": method, "k": k}
    run_name = name or default_name(source, layer, method, k)
    others = {key: value for key, value in settings.items() if key not in TextConfig.model_fields}
    config = TrainConfig.from_keywords({**fixed, "name": run_name, "num_experts": num_experts}, others)
    url, stopped = database_in(folder, database), Event()

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for callback in callbacks:
            if callback({"step": step, **metrics}) is True:
                stopped.set()

    with (
        opened(url) as engine,
        borrowed(model, tokenizer, config.language_model) as wrapped,
        progress_bar(f"Training {config.name}", progress) as show,
    ):
        metric_log = MetricLog(log, lambda: None)
        hooks = Callbacks(show, stopped.is_set)
        train_layers([config], folder, engine, wrapped, resume=resume, log=lambda *_: metric_log, callbacks=hooks)
    trained = load(runs_folder(folder) / config.name)
    trained.reference.model = model, tokenizer
    return trained


def open_like_training(
    layer: Layer, dataset: Dataset, tokens: int | str | None, settings: dict[str, Any]
) -> tuple[Source, dict[str, Any]]:
    """Open a dataset with the context length and start token of training; return the settings that remain."""
    trained = layer.run.config.text
    text_fields = {"context_length": trained.context_length, "start_token": trained.start_token}
    text_fields |= {key: value for key, value in settings.items() if key in TextConfig.model_fields}
    source = open_dataset(dataset, tokens, own_data_folder(layer.run), layer.run.tokenizer, text_fields)
    return source, {key: value for key, value in settings.items() if key not in text_fields}


def finetune(
    runs: Sequence[AnyRun],
    dataset: Dataset,
    *,
    tokens: int | str | None = None,
    name: str = FinetuneConfig.model_fields["name"].default,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    resume: Resume = "never",
    database: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> list[Layer]:
    """Fine-tune runs of several layers jointly, end to end, towards the predictions of the original model.

    >>> (tuned,) = mxd.finetune(["my-run"], texts, tokens="2k", name="{run}-tuned", model=model, progress=False)
    >>> tuned.name
    'my-run-tuned'

    Args:
        runs: runs of different layers of one language model, or their names. They stay unchanged.
        dataset: as in ``train``.
        tokens: number of training tokens. Default: the whole dataset, once.
        name: names of the new runs, where ``{run}`` stands for the name of the parent.
        model: the model that the runs were trained on. Default: as in ``index``.
        tokenizer: its tokenizer. Default: that of the first run.
        resume: ``"if-any"`` continues interrupted runs of these names.
        database: as in ``train``.
        progress: show a progress bar.
        settings: other fields of ``FinetuneConfig`` and of the configs in it, such as ``learning_rate=1e-4``.

    Raises:
        UserError: a new run exists and ``resume`` is ``"never"``, two runs are of one layer, or the dataset is short.
    """
    layers = list(map(on_disk, runs))
    if not layers:
        raise UserError("There are no runs to fine-tune. Pass at least one.")
    parent, folder = layers[0].run, own_data_folder(layers[0].run)
    source, others = open_like_training(layers[0], dataset, tokens, settings)
    config = FinetuneConfig.from_keywords({**source._asdict(), "name": name}, others)
    url = database_in(folder, database)
    with (
        opened(url) as engine,
        language_model_of(layers[0], model, tokenizer) as wrapped,
        progress_bar(f"Fine-tuning {len(layers)} runs", progress) as show,
    ):
        hooks = Callbacks(show)
        result = finetune_runs(
            [layer.run for layer in layers], config, folder, engine, wrapped, resume=resume, callbacks=hooks
        )
    tuned = [load(runs_folder(folder) / run.run) for run in result.runs]
    for layer in tuned:
        layer.reference.model = layers[0].reference.model if model is None else (model, tokenizer or parent.tokenizer)
    return tuned


def import_run(
    source: str | Path,
    *,
    name: str,
    language_model: str | Path,
    layer: int | None = None,
    part: str | None = None,
    data: str | Path | None = None,
    database: str | None = None,
) -> Layer:
    """Import a layer trained with the paper's code, sparsify, SAELens or circuit-tracer as a run.

    >>> sizes = {"num_experts": 64, "k": 4, "context_length": 16}
    >>> sizes |= {"method": "transcoder", "language_model": model_folder}
    >>> run = mxd.train(model, tokenizer, texts, layer=1, name="tc-2", progress=False, **sizes)
    >>> files = mxd.export(run, "tc-files", format="sparsify")
    >>> mxd.import_run("tc-files", name="imported", language_model=model_folder).index
    1

    Nothing in the files is executed. Index the run afterwards, like one of your own.

    Args:
        source: file, folder or Hugging Face Hub repo (OWNER/NAME or OWNER/NAME@REVISION).
        name: name of the new run.
        language_model: Hub name or folder of the language model that the layer was trained on.
        layer: index of the block whose MLP the layer replaces. Default: as the source states.
        part: folder or file of the layer inside the source, if it holds several.
        data: data folder. Default: ``MXD_DATA``, or ``data``.
        database: as in ``train``.

    Raises:
        UserError: the run exists, or the layer does not fit the language model.
    """
    folder, model_folder = data_folder(data), Path(language_model).expanduser()
    config = ImportConfig.from_keywords(
        {
            "source": str(source),
            "name": name,
            "language_model": str(model_folder.resolve() if model_folder.is_dir() else language_model),
            "layer": layer,
            "part": part,
        },
        {},
    )
    with opened(database_in(folder, database)) as engine:
        return load(runs_folder(folder) / import_layer(config, folder, engine).run)


def runs(*, data: str | Path | None = None) -> list[str]:
    """Names of all runs in the data folder.

    >>> "my-run" in mxd.runs()
    True

    Args:
        data: data folder. Default: ``MXD_DATA``, or ``data``.
    """
    return run_names(data_folder(data))


def default_name(source: str, layer: int, method: str, k: int) -> str:
    """Name of a run of a language model, such as ``gpt2-l8-k32`` or ``gpt2-l8-transcoder-k32``."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).name.removesuffix(".gguf")).strip("-._").lower() or "model"
    kind = "" if method == "mxd" else f"{method}-"
    return f"{stem[:60]}-l{layer}-{kind}k{k}"


# ---------------------------------------------------------------- serving

START_TIMEOUT_S = 60.0


class Dashboard(AbstractContextManager["Dashboard"]):
    """A running server. ``stop`` ends it; so does leaving a ``with`` block, or the end of the process."""

    def __init__(self, settings: Settings, page: str) -> None:
        self._listener = listen(settings.host, settings.port)
        self.url = url_of(self._listener) + page
        """Address of the run's page."""
        self._is_ready = Event()
        self._server = limited_server(create_protected_app(settings), settings, self._is_ready.set)
        self._thread = Thread(target=self._server.run, args=([self._listener],), daemon=True)

    def start(self) -> Self:
        """Start the server and wait until it accepts requests. Raises UserError if it does not start."""
        self._thread.start()
        if not self._is_ready.wait(START_TIMEOUT_S):
            raise UserError(f"The dashboard did not start within {START_TIMEOUT_S:.0f} seconds. Run 'mxd serve'.")
        return self

    def stop(self) -> None:
        """Stop the server. A second call does nothing."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank">{escape(self.url)}</a>'


def serve(run: AnyRun, *, port: int = 0, database: str | None = None, **settings: Any) -> Dashboard:
    """Serve the dashboard of a run's data folder from a thread, and return a handle with its ``url``.

    >>> with mxd.serve("my-run") as dashboard:
    ...     print(dashboard.url)
    http://127.0.0.1:.../runs/my-run

    Args:
        run: the run whose page is opened, or its name.
        port: port to listen on; 0 chooses a free one.
        database: SQLAlchemy URL. Default: as in ``index``.
        settings: other fields of ``mxd.backend.settings.Settings``, such as ``host="0.0.0.0"``.

    Raises:
        UserError: the port is in use, the database cannot be opened, or a setting is unknown or invalid.
    """
    layer = as_layer(run)
    with opened(database_url(layer.run, database)) as engine:
        register_run(layer.run, engine)
    given: dict[str, Any] = {"database": database} if database else {}
    try:
        options = Settings(data=own_data_folder(layer.run), port=port, **given, **settings)
    except ValidationError as error:
        raise UserError(describe_invalid(error, "settings")) from error
    return Dashboard(options, f"/runs/{quote(layer.name)}").start()
