"""The package sae-probes: 113 binary data sets and the probes of Kantamneni et al., "Are Sparse Autoencoders Useful?".

Its data sets, splits, selection of units and probes are used unchanged (arXiv 2502.16681, setting "normal").

Shapes: R texts, F features.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mxd.trainer.errors import UserError

VERSION = "0.4.2"
INSTALL = f"pip install --no-deps sae-probes=={VERSION}"
"""Without dependencies: SAELens, TransformerLens and xgboost are not used here."""
UNUSED = {"sae_lens": "SAE", "transformer_lens": "HookedTransformer", "xgboost": "XGBClassifier"}
"""Package that sae-probes imports for other probes -> the name that it imports."""
LARGEST_TRAINING_SPLIT, SMALLEST_TEST_SPLIT = 1024, 100
"""Sizes in sae-probes' setting "normal"."""
SAMPLE_SEED = 0
"""Random seed of the texts, if not all are used. It is no setting, so that all runs see the same texts."""

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BinaryDataset:
    """Texts of two classes."""

    name: str
    texts: tuple[str, ...]
    label_R: Labels
    """0 or 1 for each text."""

    @property
    def split_sizes(self) -> tuple[int, int]:
        """Numbers of training and test texts."""
        train = min(len(self.texts) - SMALLEST_TEST_SPLIT, LARGEST_TRAINING_SPLIT)
        return train, len(self.texts) - train - 1


@dataclass(frozen=True)
class ProbeResult:
    """Test scores of one probe."""

    units: tuple[int, ...]
    """Indices of the features that the probe reads."""
    auc: float
    """Area under the ROC curve."""
    accuracy: float
    f1: float
    """Mean over both classes, weighted by their sizes."""


class SaeProbes:
    """The functions of sae-probes that the benchmark calls."""

    def __init__(self) -> None:
        """Import the package.

        Raises:
            UserError: the package is not installed, or in another version.
        """
        try:
            installed = version("sae-probes")
        except PackageNotFoundError as error:
            raise UserError(f"The package sae-probes is not installed. Run: {INSTALL}") from error
        if installed != VERSION:
            raise UserError(f"sae-probes {installed} is installed, but version {VERSION} is required. Run: {INSTALL}")
        with _stand_ins(), warnings.catch_warnings():
            self._data: Any = import_module("sae_probes.utils_data")
            self._training: Any = import_module("sae_probes.utils_training")
            self._selection: Any = import_module("sae_probes.run_sae_evals")

    def dataset_names(self, chosen: Sequence[str] | None) -> list[str]:
        """Return the ``chosen`` names of data sets, by default all.

        Raises:
            UserError: there is no such data set.
        """
        names: list[str] = self._data.get_numbered_binary_tags()
        unknown = [name for name in chosen or () if name not in names]
        if unknown:
            raise UserError(f"Unknown data set '{unknown[0]}'. sae-probes has {names[0]}, {names[1]}, … {names[-1]}.")
        return list(chosen or names)

    def dataset(self, name: str, texts: int | None) -> BinaryDataset:
        """Read a data set, or a random sample of ``texts`` of it with equal classes."""
        label_R: Labels = np.asarray(self._data.get_yvals(name), dtype=np.int64)
        prompts = [str(prompt) for prompt in self._data.read_numbered_dataset_df(name)["prompt"]]
        chosen = np.arange(len(prompts))
        if texts is not None:
            count = min(texts, 2 * int(np.bincount(label_R).min()))
            chosen, _ = self._data.get_train_test_indices(label_R, count, 0, seed=SAMPLE_SEED)
        return BinaryDataset(name, tuple(prompts[index] for index in chosen), label_R[chosen])

    def probe(
        self, dataset: BinaryDataset, feature_RF: Tensor, units: Sequence[int], seed: int
    ) -> dict[int, ProbeResult]:
        """Train and test a probe for each number of units: those whose class means differ most on the training split.

        This is ``run_sae_eval`` of sae-probes without its files: logistic regression with an L1 penalty, whose strength
        is chosen on validation texts.
        """
        train_R, test_R = self._data.get_train_test_indices(dataset.label_R, *dataset.split_sizes, 0.5, seed)
        label_R = torch.from_numpy(dataset.label_R)
        train_RF, test_RF = feature_RF[train_R], feature_RF[test_R]
        normalise = self._selection.mean_act_normalization
        order_F = self._selection.get_sorted_indices(train_RF, label_R[train_R], normalise)
        results = {}
        for count in units:
            chosen = order_F[:count]
            with warnings.catch_warnings():
                # Separable classes do not converge, and scikit-learn renamed the penalty since.
                warnings.simplefilter("ignore")
                metrics = self._training.find_best_reg(
                    train_RF[:, chosen],
                    label_R[train_R],
                    test_RF[:, chosen],
                    label_R[test_R],
                    penalty="l1",
                    seed=seed,
                ).metrics
            scores = (metrics.test_auc, metrics.test_acc, metrics.test_f1)
            results[count] = ProbeResult(tuple(chosen.tolist()), *scores)
        return results


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let sae-probes import the packages that it does not use here, inside the context, where they are missing."""
    missing = [name for name in UNUSED if find_spec(name) is None]
    for name in missing:
        module: Any = ModuleType(name)
        setattr(module, UNUSED[name], object)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
