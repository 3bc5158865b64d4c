"""Probes of single experts on labelled texts, beside the MLP's neurons and a random gate.

Sparse probing (section 4.2 of the MxD paper, after Gurnee et al., arXiv 2305.01610), with a validation split.

Each class is probed against all others. Candidates are the features with the largest difference of class means on the
training split. A logistic regression is trained on each candidate alone. The candidate with the best F1 on the
validation split is scored once on the test split. The paper's code selects on the test split, which is optimistic. A
second probe is trained on the five best candidates together.

Shapes: E examples, T tokens of a text, F features (experts or neurons), I input width, N experts, K active, B
resamples.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from sqlalchemy import Engine, delete
from torch import Tensor, nn

from mxd.trainer.config.analysis import ProbeConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.readers import labelled_file, read_labelled
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import after_start, start_token_id
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.layers.ops import gate
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import ProbeRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import finite

Features = npt.NDArray[np.float32]
MIN_TOKENS = 5
"""Shorter texts are skipped, as in the paper's code."""
TOKENS_PER_TEXT = 4
"""Tokens drawn from each text when single tokens are probed."""
MIN_CLASS_SIZE = 10
"""Classes with fewer texts are skipped."""


def sample_labelled(config: ProbeConfig, tokenize: Callable[[str], list[int]]) -> list[tuple[str, list[int]]]:
    """Read at most ``config.limit`` random labelled texts: the class and the token ids of each.

    Texts shorter than ``MIN_TOKENS`` are left out, then classes smaller than ``MIN_CLASS_SIZE``.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file cannot be read, lacks a column, or has fewer than two large classes.
    """
    path = labelled_file(config.labels)
    labelled = list(read_labelled(path, config.text_column, config.label_column))
    order = np.random.default_rng(config.seed).permutation(len(labelled))[: config.limit]
    sample = [(labelled[index].label, tokenize(labelled[index].text)) for index in order]
    sample = [(label, ids) for label, ids in sample if len(ids) >= MIN_TOKENS]
    counts = Counter(label for label, _ in sample)
    large = {label for label, count in counts.items() if count >= MIN_CLASS_SIZE}
    if len(large) < 2:
        raise UserError(
            f"Too few classes: {path} has {len(large)} with at least {MIN_CLASS_SIZE} texts of {MIN_TOKENS} or more "
            "tokens. At least 2 are needed."
        )
    return [(label, ids) for label, ids in sample if label in large]


@dataclass(frozen=True)
class ProbeExamples:
    """Labelled examples with their features by kind."""

    labels_E: npt.NDArray[np.str_]
    text_E: npt.NDArray[np.int64]
    """Index of each example's text. Examples of one text always belong to the same split."""
    features: Mapping[str, Features]
    """Features, [E, F], of each kind: ``experts``, ``neurons`` and ``random-gate``."""


@torch.no_grad()
def collect_examples(
    config: ProbeConfig,
    language_model: LanguageModel,
    layer: int,
    sparse_layer: SparseLayer,
    callbacks: Callbacks,
    start_token: str | None = None,
) -> ProbeExamples:
    """Compute the features of every labelled text, after the run's start token or, by default, the language model's.
    Errors as ``sample_labelled``."""
    start, max_tokens = start_token_id(language_model.tokenizer, start_token), language_model.max_tokens - 1
    max_tokens, generator = min(config.tokens, max_tokens), np.random.default_rng(config.seed)
    random_NI = random_gate_weights(sparse_layer, config.seed)

    def token_ids(text: str) -> list[int]:
        ids: list[int] = language_model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return after_start(start, ids)[1:]

    texts = sample_labelled(config, token_ids)
    labels, numbers, rows = list[str](), list[int](), defaultdict[str, list[Features]](list)
    for number, (label, ids) in enumerate(texts):
        callbacks.check_cancelled()
        ids = ids[:max_tokens] if config.window == "first" else ids[-max_tokens:]
        units = capture_units(language_model, [layer], torch.tensor([[start, *ids]]))[layer]
        if config.level == "text":  # the start token is never included
            positions = [torch.arange(1, len(ids) + 1)]
        else:
            chosen = generator.choice(len(ids), size=min(TOKENS_PER_TEXT, len(ids)), replace=False)
            positions = [torch.tensor([position + 1]) for position in chosen.tolist()]
        features = {
            "experts": units.experts(sparse_layer),
            "neurons": units.neuron_TH,
            "random-gate": units.random_gate(sparse_layer, random_NI),
        }
        for kind, values_TF in features.items():
            rows[kind] += [values_TF[position].mean(0).numpy() for position in positions]
        labels += [label] * len(positions)
        numbers += [number] * len(positions)
        callbacks.on_progress(number + 1, len(texts), "")
    stacked = {kind: np.stack(values).astype(np.float32) for kind, values in rows.items()}
    return ProbeExamples(np.array(labels), np.array(numbers), stacked)


@dataclass(frozen=True)
class LayerUnits:
    """Activations of one layer's MLP on some tokens, and of the units that are probed."""

    mlp: MlpActivations
    """Inputs and outputs in float32."""
    neuron_TH: Tensor
    """Input of the down projection, on the CPU."""

    @torch.no_grad()
    def experts(self, sparse_layer: SparseLayer) -> Tensor:
        """Activations [T, N] of all experts, on the CPU."""
        routing = sparse_layer.route(self.mlp.inputs_for(sparse_layer))
        return _to_dense(routing.activations_TK, routing.indices_TK, sparse_layer.config.num_experts)

    @torch.no_grad()
    def random_gate(self, sparse_layer: SparseLayer, weight_NI: Tensor) -> Tensor:
        """Activations [T, N] of an untrained gate with the layer's K, on the CPU."""
        k = min(sparse_layer.config.k, len(weight_NI))
        return _to_dense(*gate(self.mlp.input_TI, weight_NI, weight_NI.new_zeros(len(weight_NI)), k), len(weight_NI))


@torch.no_grad()
def capture_units(
    language_model: LanguageModel, layers: Sequence[int], ids_BT: Tensor, rows_R: Tensor | None = None
) -> dict[int, LayerUnits]:
    """Capture several layers in one forward pass, on the tokens ``rows_R`` of all B x T; by default on all of them."""
    rows_R = torch.arange(ids_BT.numel()) if rows_R is None else rows_R
    hidden: dict[int, Tensor] = {}
    with ExitStack() as stack:
        for layer in layers:

            def record(_module: nn.Module, inputs: tuple[Tensor, ...], layer: int = layer) -> None:
                hidden[layer] = inputs[0].clone()

            stack.callback(language_model.down_projection(layer).register_forward_pre_hook(record).remove)
        captured = language_model.capture_layers(layers, ids_BT)
    units = {}
    for layer in layers:
        neuron_TH = hidden[layer].flatten(0, -2)
        mlp = MlpActivations(*(values.float() for values in captured[layer].rows(rows_R)))
        units[layer] = LayerUnits(mlp, neuron_TH[rows_R.to(neuron_TH.device)].float().cpu())
    return units


def random_gate_weights(sparse_layer: SparseLayer, seed: int) -> Tensor:
    """Return weights [N, I] of an untrained gate of the layer's size, as a baseline without learning."""
    config = sparse_layer.config
    generator = torch.Generator().manual_seed(seed)
    random_NI: Tensor = torch.randn(config.num_experts, config.input_width, generator=generator)
    random_NI /= config.input_width**0.5
    return random_NI.to(sparse_layer.table.device)


def _to_dense(activations_TK: Tensor, indices_TK: Tensor, count: int) -> Tensor:
    """Activations of all experts, [T, N], with zeros for those that are not selected."""
    dense_TN: Tensor = activations_TK.new_zeros(len(activations_TK), count).scatter(1, indices_TK, activations_TK)
    return dense_TN.cpu()


Mask = npt.NDArray[np.bool_]
PARTS = (0.6, 0.8)
"""Shares of the texts at which the validation split and the test split begin."""
JOINT_FEATURES = 5
"""Number of features of the second probe."""
HISTOGRAM_BINS = 40
RESAMPLES = 500


@dataclass(frozen=True)
class ProbeScore:
    """Score of a probe on the test split."""

    experts: tuple[int, ...]
    """Indices of the probe's features."""
    f1: float
    f1_low: float
    """Lower end of the 95 % bootstrap interval over test examples."""
    f1_high: float
    """Upper end of the 95 % bootstrap interval over test examples."""
    balanced_accuracy: float
    """NaN if the test split has only one class."""
    roc_auc: float
    """NaN if the test split has only one class."""


@dataclass(frozen=True)
class ClassResult:
    examples: int
    """Number of examples of the class."""
    expert: int
    """Index of the best feature on the validation split."""
    f1: float
    """Test score of the best feature, as in ``top1``; so are the next two."""
    balanced_accuracy: float
    roc_auc: float
    top1: ProbeScore
    """Probe on the best feature."""
    top5: ProbeScore
    """Probe on the five best features together."""
    edges: tuple[float, ...]
    """Bin edges of the histograms of the best feature."""
    class_counts: tuple[int, ...]
    """Histogram over test examples of the class."""
    other_counts: tuple[int, ...]
    """Histogram over test examples of the other classes."""


@dataclass(frozen=True)
class FeatureResult:
    classes: dict[str, ClassResult]
    mean_f1_top1: float
    """Mean over classes of the F1 of ``top1``."""
    mean_f1_top5: float
    """Mean over classes of the F1 of ``top5``."""


class Split(NamedTuple):
    """Masks of the training, validation and test examples."""

    train_E: Mask
    validation_E: Mask
    test_E: Mask


def split_texts(text_E: npt.NDArray[np.int64], labels_E: npt.NDArray[np.str_], seed: int) -> Split:
    """Split texts at random. All examples of a text belong to the same split.

    Every class has texts in all three, which takes at least three texts: those of a class that has not are drawn again.
    """
    texts, first, text_of_E = np.unique(text_E, return_index=True, return_inverse=True)
    generator = np.random.default_rng(seed)
    draws = generator.random(len(texts))
    for label in np.unique(labels_E):
        own = labels_E[first] == label
        while len(set(np.digitize(draws[own], PARTS).tolist())) <= len(PARTS):
            draws[own] = generator.random(own.sum())
    part_E = np.digitize(draws, PARTS)[text_of_E]
    return Split(*(part_E == part for part in range(3)))


def probe_examples(examples: ProbeExamples, config: ProbeConfig) -> dict[str, FeatureResult]:
    split, labels_E, kinds = split_texts(examples.text_E, examples.labels_E, config.seed), examples.labels_E, {}
    for kind, features_EF in examples.features.items():
        classes = {
            str(label): _probe_class(features_EF, labels_E == label, split, config) for label in np.unique(labels_E)
        }
        top1, top5 = ([getattr(it, top).f1 for it in classes.values()] for top in ("top1", "top5"))
        kinds[kind] = FeatureResult(classes, float(np.mean(top1)), float(np.mean(top5)))
    return kinds


def _probe_class(features_EF: Features, is_class_E: Mask, split: Split, config: ProbeConfig) -> ClassResult:
    candidates = top_candidates(features_EF, is_class_E, split.train_E, config.candidates)
    scores = {}
    for feature in candidates:
        regression, scale = _train_probe(features_EF, is_class_E, [feature], split.train_E)
        predicted = regression.predict(features_EF[split.validation_E][:, [feature]] / scale)
        scores[feature] = float(f1_score(is_class_E[split.validation_E], predicted, zero_division=0.0))
    by_validation = sorted(candidates, key=lambda feature: -scores[feature])
    top1 = _score(features_EF, is_class_E, by_validation[:1], split, config.seed)
    top5 = _score(features_EF, is_class_E, by_validation[:JOINT_FEATURES], split, config.seed)
    values = features_EF[split.test_E, top1.experts[0]]
    edges = np.linspace(min(0.0, float(values.min())), float(values.max()) or 1.0, HISTOGRAM_BINS + 1)
    return ClassResult(
        examples=int(is_class_E.sum()),
        expert=top1.experts[0],
        f1=top1.f1,
        balanced_accuracy=top1.balanced_accuracy,
        roc_auc=top1.roc_auc,
        top1=top1,
        top5=top5,
        edges=tuple(edges.tolist()),
        class_counts=tuple(np.histogram(values[is_class_E[split.test_E]], edges)[0].tolist()),
        other_counts=tuple(np.histogram(values[~is_class_E[split.test_E]], edges)[0].tolist()),
    )


def top_candidates(features_EF: Features, is_class_E: Mask, train_E: Mask, count: int) -> list[int]:
    """Features with the largest difference of class means on the training split, largest first."""
    means = [features_EF[train_E & chosen_E].mean(0) for chosen_E in (is_class_E, ~is_class_E)]
    order: list[int] = np.argsort(-np.abs(means[0] - means[1]), kind="stable")[:count].tolist()
    return order


def _train_probe(
    features_EF: Features, is_class_E: Mask, features: Sequence[int], train_E: Mask
) -> tuple[Any, npt.NDArray[Any]]:
    """Train a probe on standardised features. Returns the regression and the scale of the features."""
    rows = features_EF[:, list(features)]
    scale = rows[train_E].std(0) + np.float32(1e-12)
    regression = LogisticRegression(class_weight="balanced", max_iter=200)
    with warnings.catch_warnings():
        # A feature that separates the classes has no finite optimum. The last iterate is good enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(rows[train_E] / scale, is_class_E[train_E])
    return regression, scale


def _score(features_EF: Features, is_class_E: Mask, features: Sequence[int], split: Split, seed: int) -> ProbeScore:
    regression, scale = _train_probe(features_EF, is_class_E, features, split.train_E)
    rows = features_EF[split.test_E][:, list(features)] / scale
    actual, predicted = is_class_E[split.test_E], regression.predict(rows)
    sample_BE = np.random.default_rng(seed).integers(len(actual), size=(RESAMPLES, len(actual)))
    actual_BE, predicted_BE = actual[sample_BE], predicted[sample_BE]
    f1_B = 2 * (actual_BE & predicted_BE).sum(1) / np.maximum(actual_BE.sum(1) + predicted_BE.sum(1), 1)
    low, high = np.percentile(f1_B, (2.5, 97.5)).tolist()
    has_both = actual.any() and not actual.all()
    return ProbeScore(
        experts=tuple(features),
        f1=float(f1_score(actual, predicted, zero_division=0.0)),
        f1_low=low,
        f1_high=high,
        balanced_accuracy=float(balanced_accuracy_score(actual, predicted)) if has_both else float("nan"),
        roc_auc=float(roc_auc_score(actual, regression.decision_function(rows))) if has_both else float("nan"),
    )


def probe(
    run: Run, config: ProbeConfig, language_model: LanguageModel, database: Engine, callbacks: Callbacks
) -> dict[str, Any]:
    """Probe a run's experts, the MLP's neurons and a random gate, and replace the stored result.

    Raises:
        NotFoundError: there is no such file of labelled texts, or the run is not in the database.
        UserError: the labelled texts cannot be used.
    """
    sparse_layer = run.layer.to(language_model.device_of(run.config.layer))
    start_token = run.config.text.start_token
    examples = collect_examples(config, language_model, run.config.layer, sparse_layer, callbacks, start_token)
    callbacks.on_progress(0, 1, "training the probes")
    kinds = probe_examples(examples, config)
    result: dict[str, Any] = finite(
        {
            "run": run.name,
            "labels": config.labels,
            "level": config.level,
            "examples": len(examples.labels_E),
            "classes": asdict(kinds["experts"])["classes"],
            "kinds": {kind: asdict(probes) for kind, probes in kinds.items()},
        }
    )
    text, table = fingerprint(TextConfig(dataset=config.labels, column=config.text_column)), ProbeRecord
    with writing(database) as session:
        run_id = find_record(session, run.name).id
        session.execute(
            delete(table).where(table.run_id == run_id, table.fingerprint == text, table.level == config.level)
        )
        session.add(
            table(
                run_id=run_id,
                labels=config.labels,
                fingerprint=text,
                level=config.level,
                settings=config.model_dump(mode="json"),
                result=result,
                created_at=utc_now(),
            )
        )
    return result
