"""Functions of scripts on a run: measure it, and route, steer and trace a text through it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.datasets import Dataset, save_labelled, text_documents
from mxd.api.layer import AnyRun, Layer, as_layer, language_model_of, on_disk
from mxd.api.loading import database_url, own_data_folder, resolve_medians
from mxd.api.models import Edits, parse_edits, unchanged
from mxd.api.training import open_like_training, progress_bar
from mxd.backend.database.engine import opened, reading
from mxd.backend.export import TableFormat
from mxd.backend.export.bundles.pack import pack as pack_run
from mxd.backend.export.tables import export_run
from mxd.trainer.analysis.ablation import AblationResult, build_ablations
from mxd.trainer.analysis.circuits.checking import check
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.analysis.circuits.tracing import trace as trace_circuit
from mxd.trainer.analysis.contrast import NamedText, text_of_file
from mxd.trainer.analysis.contrast import contrast as contrast_texts
from mxd.trainer.analysis.expert import mean_outputs
from mxd.trainer.analysis.indexing.build import IndexResult, build_index
from mxd.trainer.analysis.labelling.rules import label_experts
from mxd.trainer.analysis.recurrence import measure_recurrence, save_recurrence
from mxd.trainer.analysis.results import Contrast, Recurrence
from mxd.trainer.config.analysis import (
    AblationConfig,
    CircuitConfig,
    ContrastConfig,
    EvaluateConfig,
    IndexConfig,
    ProbeConfig,
    RecurrenceConfig,
    TokenTarget,
)
from mxd.trainer.config.analysis import Target as CircuitTarget
from mxd.trainer.config.steering import SteeringConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluate import Evaluator, check_held_out, is_training_text, write_evaluation
from mxd.trainer.evaluation.evaluate import evaluate as evaluate_run
from mxd.trainer.evaluation.probing import probe as probe_run
from mxd.trainer.evaluation.results import Evaluation
from mxd.trainer.inference.results import Routing, SteeredGeneration
from mxd.trainer.inference.routing import route as route_text
from mxd.trainer.inference.steering import steer as steer_text
from mxd.trainer.language_model.tokenizer import single_token
from mxd.trainer.storage.formats import LayerFormat, VectorFormat
from mxd.trainer.storage.formats.transcoders import check_vectors, export_layers, write_vectors
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.utils.callbacks import Callbacks

# ---------------------------------------------------------------- measurements


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
    layer = on_disk(run)
    source, keywords = open_like_training(layer, dataset, tokens, settings)
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
    on_disk(Layer(layer.run) if isinstance(run, Layer) else layer)
    settings = {"k": layer.changed_k, **settings}
    source, keywords = open_like_training(layer, dataset, tokens, settings)
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


def ablate(
    run: AnyRun,
    experts: Sequence[int] = (),
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> AblationResult:
    """Ablate and amplify experts on their own indexed examples, and store the effects with them.

    >>> result = mxd.ablate("my-run", model=model, progress=False)
    >>> result.experts > 0
    True

    ``layer.experts()`` then has the columns ``loss_increase``, ``kl_amplified``, ``output_share`` and
    ``input_dependence``.

    Args:
        run: an indexed run, or its name.
        experts: ids of the experts. Default: all active ones.
        model, tokenizer, database, progress: as in ``index``.
        settings: other fields of ``AblationConfig``, such as ``examples_per_bin=3``.

    Raises:
        UserError: the run is not indexed, or has no examples of a chosen expert.
    """
    layer, config = on_disk(run), AblationConfig.from_keywords({"experts": tuple(experts)}, settings)
    with (
        opened(database_url(layer.run, database)) as engine,
        language_model_of(layer, model, tokenizer) as wrapped,
        progress_bar(f"Measuring {layer.name}", progress, "examples") as show,
    ):
        return build_ablations(layer.run, config, wrapped, engine, callbacks=Callbacks(show))


def recurrence(
    run: AnyRun,
    others: AnyRun | Sequence[AnyRun],
    dataset: Dataset,
    *,
    tokens: int | str | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> Recurrence:
    """Measure which experts of a run are found again in other runs of the same layer, such as other seeds.

    >>> sizes = {"num_experts": 40, "k": 4, "context_length": 16}
    >>> other = mxd.train(model, tokenizer, texts, layer=1, seed=1, name="seed-1", progress=False, **sizes)
    >>> found = mxd.recurrence("my-run", "seed-1", texts, tokens="2k", model=model, progress=False)
    >>> found.runs[0].run
    'seed-1'

    The result is stored with the experts if the run is indexed.

    Args:
        run: the run whose experts are described, or its name.
        others: the runs that they are looked for in.
        dataset: as in ``train``.
        tokens: number of tokens to read. Default: the whole dataset.
        model, tokenizer, database, progress: as in ``index``.
        settings: other fields of ``RecurrenceConfig`` and ``TextConfig``, such as ``min_tokens=50``.

    Raises:
        UserError: the runs are of different layers or models, or the dataset is too short.
    """
    layer, compared = on_disk(run), [on_disk(each).run for each in _several(others)]
    source, keywords = open_like_training(layer, dataset, tokens, settings)
    config = RecurrenceConfig.from_keywords(source._asdict(), keywords)
    with opened(database_url(layer.run, database)) as engine, language_model_of(layer, model, tokenizer) as wrapped:
        with progress_bar(f"Comparing {layer.name}", progress) as show:
            result = measure_recurrence(layer.run, compared, config, wrapped, Callbacks(show))
        save_recurrence(engine, result, config)
    return result


def probe(
    run: AnyRun,
    labels: str | Path | Iterable[Any],
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """Test single experts as classifiers of labelled texts, beside MLP neurons and a random gate as baselines.

    >>> labelled = [("the red fox ran", "fox"), ("a very old dog sat", "dog")] * 20
    >>> result = mxd.probe("my-run", labelled, model=model, progress=False)
    >>> result["examples"], sorted(result["kinds"])
    (40, ['experts', 'neurons', 'random-gate'])

    Args:
        run: the run, or its name.
        labels: a .jsonl or .csv file of labelled texts; or pairs (text, label); or rows with ``text`` and ``label``.
        model, tokenizer, database, progress: as in ``index``.
        settings: other fields of ``ProbeConfig``, such as ``level="token"``.

    Returns:
        ``classes`` has the best expert and the scores of each class, and ``kinds`` those of each kind of unit.

    Raises:
        UserError: the labelled texts cannot be used.
    """
    layer = on_disk(run)
    path = labels if isinstance(labels, str | Path) else save_labelled(labels, own_data_folder(layer.run))
    config = ProbeConfig.from_keywords({"labels": str(path)}, settings)
    with opened(database_url(layer.run, database)) as engine, language_model_of(layer, model, tokenizer) as wrapped:
        register_run(layer.run, engine)
        with progress_bar(f"Probing {layer.name}", progress, "texts") as show:
            return probe_run(layer.run, config, wrapped, engine, Callbacks(show))


def contrast(
    run: AnyRun,
    a: Dataset,
    b: Dataset,
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    progress: bool = True,
    **settings: Any,
) -> Contrast:
    """Find the experts that are active more often in text A than in text B, or less often.

    >>> red, blue = ["the red fox ran"] * 12, ["a very old dog sat"] * 12
    >>> result = mxd.contrast("my-run", red, blue, model=model, progress=False)
    >>> result.unit, result.a.documents, result.tested > 0
    ('document', 12, True)

    Args:
        run: the run, or its name.
        a: text A as a file, a folder or a Hub dataset by name; a ``TextConfig``; or an iterable of texts or of rows
            with a column ``text``. One item is one document, the unit that is counted as independent.
        b: text B.
        model, tokenizer, progress: as in ``index``.
        settings: fields of ``ContrastConfig``, such as ``tokens="20k"`` or ``min_tokens=50``.

    Raises:
        UserError: a text is too short, or no expert is active often enough.
    """
    layer, config = _whole(run), ContrastConfig.from_keywords({}, settings)
    text_a, text_b = _named("A", a, config), _named("B", b, config)
    with (
        language_model_of(layer, model, tokenizer) as wrapped,
        progress_bar(f"Contrasting {layer.name}", progress) as show,
    ):
        return contrast_texts(layer.run, text_a, text_b, config, wrapped, Callbacks(show))


def _named(name: str, dataset: Dataset, config: ContrastConfig) -> NamedText:
    if isinstance(dataset, str | Path):
        dataset = TextConfig(dataset=str(dataset))
    if isinstance(dataset, TextConfig):
        return text_of_file(dataset, config.seed)
    rows: Iterable[Any] = dataset
    return NamedText(name, text_documents(rows))


# ---------------------------------------------------------------- texts


def route(
    run: AnyRun,
    text: str,
    *,
    k: int | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Routing:
    """Route a text: the active experts of each token, with their activations and shares of the output.

    >>> routing = mxd.route("my-run", "One day", model=model)
    >>> routing.tokens[1].text, len(routing.tokens[1].experts) <= 4
    ('O', True)

    Args:
        run: the run, or its name.
        text: the text. The run's start token precedes it.
        k: active experts per token. Default: the run's K.
        model, tokenizer: as in ``index``.

    Raises:
        UserError: the text is empty or too long, or the run has no such K.
    """
    layer = as_layer(run)
    with language_model_of(layer, model, tokenizer) as language_model:
        return route_text(language_model, layer.run, text, layer.changed_k if k is None else k)


def generate(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    edits: Edits,
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> SteeredGeneration:
    """Continue a prompt without edits (baseline) and with them (steered), with equal random numbers.

    >>> generation = mxd.generate("my-run", "One day", {7: +6, 3: "ablate"}, model=model, max_tokens=4)
    >>> [len(generation.tokens(variant)) <= 4 for variant in ("baseline", "steered")]
    [True, True]

    Args:
        run: the steered run, or several of different layers with the steered one first.
        prompt: the text to continue.
        edits: as in ``Layer.steer``; edits in text form can also name other runs, as in ``"other-run/7:add:6"``.
        model, tokenizer: as in ``index``.
        settings: other fields of ``SteeringConfig`` and ``Sampling``, such as ``max_tokens=24`` or ``seed=1``.

    Raises:
        UserError: the prompt is too long, an edit or setting is invalid, or a run does not fit the model.
    """
    layers = [as_layer(each) for each in _several(run)]
    parsed = resolve_medians(layers[0].run, parse_edits(edits))
    k = layers[0].changed_k if len(layers) == 1 else None
    config = SteeringConfig.from_keywords({"prompt": prompt, "edits": parsed}, {"k": k, **settings})
    with language_model_of(layers[0], model, tokenizer) as language_model:
        runs = [layer.run for layer in layers]
        return SteeredGeneration.collect(runs[0].name, prompt, steer_text(language_model, runs, config))


def trace(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    *,
    target: CircuitTarget | str | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> Circuit:
    """Trace a circuit: the experts with the largest effects on a target, through the layers of one or more runs.

    >>> circuit = mxd.trace("my-run", "One day", model=model, nodes=5)
    >>> len(circuit.experts)
    5

    Args:
        run: the run, or several of different layers.
        prompt: the text.
        target: a token such as ``" Paris"``, or one of ``mxd.trainer.config.analysis``: a token, the difference of two
            tokens, a set of tokens, a continuation, or an expert. Default: the most probable next token.
        model, tokenizer: as in ``index``.
        settings: other fields of ``CircuitConfig``, such as ``nodes=30``.

    Raises:
        UserError: the text is too long, the target does not exist, or circuits are not supported for a run.
    """
    layers = [_whole(each) for each in _several(run)]
    cores = (layer.core for layer in layers)
    with language_model_of(layers[0], model, tokenizer) as language_model, unchanged(*cores):
        if isinstance(target, str):
            target = TokenTarget(token=single_token(language_model, target))
        config = CircuitConfig.from_keywords({"prompt": prompt, "target": target or TokenTarget()}, settings)
        return trace_circuit(language_model, [layer.run for layer in layers], config)


def check_circuit(
    run: AnyRun | Sequence[AnyRun],
    prompt: str,
    circuit: Circuit,
    *,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    **settings: Any,
) -> CircuitCheck:
    """Measure every effect that a circuit predicts, by ablation in the language model.

    >>> circuit = mxd.trace("my-run", "One day", model=model, nodes=5)
    >>> check = mxd.check_circuit("my-run", "One day", circuit, model=model)
    >>> len(check.measured) == len(circuit.nodes)
    True

    Args:
        run: as in ``trace``.
        prompt: the text of the circuit.
        circuit: result of ``trace``.
        model, tokenizer: as in ``index``.
        settings: fields of ``CircuitConfig`` that the circuit was traced with: ``position`` and ``errors``.

    Raises:
        UserError: as ``trace``, or the circuit was traced with other runs.
    """
    layers = [_whole(each) for each in _several(run)]
    config = CircuitConfig.from_keywords({"prompt": prompt}, settings)
    cores = (layer.core for layer in layers)
    with language_model_of(layers[0], model, tokenizer) as language_model, unchanged(*cores):
        return check(language_model, [layer.run for layer in layers], config, circuit)


def _several(runs: AnyRun | Sequence[AnyRun]) -> Sequence[AnyRun]:
    return runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]


def _whole(run: AnyRun) -> Layer:
    """The layer, if it has the K of its run, which cannot be changed here."""
    layer = as_layer(run)
    if layer.changed_k is not None:
        raise UserError(
            f"This layer has K = {layer.config.k}, but its run '{layer.name}' has K = {layer.run.layer.config.k}. Save "
            "it with layer.save_pretrained(folder), and pass mxd.load(folder)."
        )
    return layer


# ---------------------------------------------------------------- files


def export(
    run: AnyRun | Sequence[AnyRun],
    folder: str | Path,
    *,
    format: TableFormat | LayerFormat | VectorFormat = "json",
    experts: Sequence[int] = (),
    model_id: str | None = None,
    source_set: str | None = None,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    database: str | None = None,
    progress: bool = True,
) -> list[Path]:
    """Write experts with their examples, trained layers, or steering vectors to a new folder. Returns the files.

    >>> [path.name for path in mxd.export("my-run", "my-tables", format="csv", progress=False)]
    ['examples.csv', 'experts.csv']
    >>> [path.name for path in mxd.export("my-run", "my-layer", format="saelens")]
    ['cfg.json', 'sae_weights.safetensors']

    Args:
        run: the run, or its name; for layers also several of different layers.
        folder: a new or empty folder.
        format: ``json``, ``csv``, ``parquet`` or ``neuronpedia`` for an indexed run's experts and examples; ``site``
            for a website of them; ``saelens``, ``sparsify`` or ``circuit-tracer`` for layers; ``gguf`` or ``vectors``
            for steering vectors.
        experts: ids of the experts whose steering vectors are written.
        model_id: Neuronpedia's id of the language model. Default: the last part of its name.
        source_set: Neuronpedia's id of the set of features. Default: the run's name.
        model: for steering vectors, as in ``index``.
        tokenizer: as in ``index``.
        database, progress: as in ``index``.

    Raises:
        UserError: the folder is not empty, the run is not indexed, or the format has no such layers.
    """
    layers, target = [_whole(each) for each in _several(run)], Path(folder).expanduser()
    if experts and format not in get_args(VectorFormat):
        raise UserError('experts chooses steering vectors, of format="gguf" or "vectors". Leave it out.')
    if (model_id or source_set) and format != "neuronpedia":
        raise UserError('model_id and source_set need format="neuronpedia". Leave them out.')
    if format in get_args(LayerFormat):
        export_layers([layer.run for layer in layers], format, target)  # type: ignore[arg-type]
        return sorted(path for path in target.rglob("*") if path.is_file())
    if len(layers) > 1:
        raise UserError(f"format={format!r} exports one run at a time. Pass one run.")
    layer = on_disk(layers[0])
    with opened(database_url(layer.run, database)) as engine:
        if format in get_args(VectorFormat):
            check_vectors(layer.run, format, experts, target)  # type: ignore[arg-type]
            with (
                language_model_of(layer, model, tokenizer) as wrapped,
                progress_bar(f"Averaging {layer.name}", progress, "experts") as show,
            ):
                means = mean_outputs(layer.run, experts, wrapped, engine, Callbacks(show))
            write_vectors(layer.run, format, {mean.expert: mean.vector_W for mean in means}, target)  # type: ignore[arg-type]
        else:
            with reading(engine) as session, progress_bar(f"Exporting {layer.name}", progress, "experts") as show:
                export_run(session, layer.run, target, format, Callbacks(show), model_id, source_set)  # type: ignore[arg-type]
    return sorted(path for path in target.rglob("*") if path.is_file())


def pack(run: AnyRun, file: str | Path | None = None, *, database: str | None = None, progress: bool = True) -> Path:
    """Pack a run into one .mxd file: weights, top examples, labels, notes, lists, sessions and evaluations.

    >>> mxd.pack("my-run", "my-run.mxd", progress=False).name
    'my-run.mxd'

    Args:
        run: the run, or its name.
        file: file to write. Default: NAME.mxd in the working folder.
        database, progress: as in ``index``.

    Raises:
        UserError: the file exists, or the run is not in the database.
    """
    layer = on_disk(run)
    target = Path(f"{layer.name}.mxd") if file is None else Path(file).expanduser()
    with (
        opened(database_url(layer.run, database)) as engine,
        reading(engine) as session,
        progress_bar(f"Packing {layer.name}", progress, "tables") as show,
    ):
        pack_run(session, layer.run, target, Callbacks(show))
    return target
