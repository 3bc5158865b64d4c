"""Contrasts of two texts: which experts tell them apart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mxd.api.datasets import Dataset, text_documents
from mxd.api.loading import as_layer
from mxd.api.measurements import AnyRun
from mxd.api.models import language_model_of
from mxd.api.training import progress_bar
from mxd.trainer.analysis.contrast.measure import contrast as contrast_texts
from mxd.trainer.analysis.contrast.results import Contrast
from mxd.trainer.analysis.contrast.texts import NamedText, text_of_file
from mxd.trainer.config import ContrastConfig, TextConfig
from mxd.trainer.utils.callbacks import Callbacks


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
        model: as in ``index``.
        tokenizer: as in ``index``.
        progress: show a progress bar.
        settings: fields of ``ContrastConfig``, such as ``tokens="20k"`` or ``min_tokens=50``.

    Raises:
        UserError: a text is too short, or no expert is active often enough.
    """
    layer, config = as_layer(run), ContrastConfig.from_keywords({}, settings)
    text_a, text_b = _named("A", a, config), _named("B", b, config)
    with (
        language_model_of(layer, model, tokenizer) as wrapped,
        progress_bar(f"Contrasting {layer.name}", progress) as show,
    ):
        return contrast_texts(layer.run, text_a, text_b, config, wrapped, Callbacks(show))


def _named(name: str, dataset: Dataset, config: ContrastConfig) -> NamedText:
    if isinstance(dataset, str | Path):
        return text_of_file(TextConfig(dataset=str(dataset)), config.seed)
    if isinstance(dataset, TextConfig):
        return text_of_file(dataset, config.seed)
    rows: Iterable[Any] = dataset
    return NamedText(name, text_documents(rows))
