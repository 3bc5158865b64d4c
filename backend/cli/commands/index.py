"""``mxd index`` and ``mxd label``: statistics, top examples and labels of experts."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, ModelCommand, Positional
from mxd.backend.cli.console import progress_of, stoppable, task
from mxd.trainer.config import IndexConfig, TextConfig
from mxd.trainer.errors import UserError
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.trainer.analysis.labelling.rules import LabelResult
    from mxd.trainer.storage.run import Run


KEY_VARIABLE = "MXD_ENDPOINT_KEY"
LANGUAGE_MODEL_OPTIONS = {"language_model", "limit", "experts", "timeout"}


class LabelCommand(Command):
    """Label experts from their top examples and score each label on held-out examples.

    By default a heuristic writes rules on tokens; no language model is needed, and 'mxd index' runs it automatically.
    With --endpoint a language model writes the labels. Each is saved as soon as it is scored, and rerunning the command
    continues. Set MXD_ENDPOINT_KEY if the endpoint needs an API key. User labels are never changed.
    """

    examples: ClassVar = (
        "mxd label gpt2-l8-k32",
        "mxd label gpt2-l8-k32 --endpoint http://127.0.0.1:11434/v1 --language-model llama3.1 --experts 12,40",
        "mxd label gpt2-l8-k32 --endpoint https://api.openai.com/v1 --language-model gpt-4o-mini --limit 500",
    )
    groups: ClassVar = "labels by a language model: endpoint language-model limit experts timeout"

    name: Positional[str]
    """Name or folder of the run."""
    endpoint: str | None = None
    """URL of an OpenAI-compatible endpoint, such as http://127.0.0.1:11434/v1."""
    language_model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of the language model at the endpoint."""
    limit: Annotated[int, Field(gt=0)] = 100
    """Maximum number of experts to label, those with the largest activations first."""
    experts: list[Annotated[int, Field(ge=0)]] | None = None
    """Label only these experts."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds to wait for an answer."""

    def run(self) -> int:
        if self.endpoint is not None:
            if not self.endpoint.startswith(("http://", "https://")):
                raise UserError(f"Invalid --endpoint: '{self.endpoint}'. It must start with http:// or https://.")
            if self.language_model is None:
                raise UserError("Missing --language-model. Run 'mxd label --help' for a description.")
        elif self.model_fields_set & LANGUAGE_MODEL_OPTIONS:
            raise UserError("--language-model, --limit, --experts and --timeout require --endpoint.")
        (run,) = self.load_runs([self.name])
        if self.endpoint is not None and self.language_model is not None:
            self._explain(run, self.endpoint, self.language_model)
            return 0
        with self.opened() as database:
            result = label_run(run, database)
        text = (
            f"{result.run}: {result.labelled:,} of {result.experts:,} active experts labelled in {result.seconds:.0f} s"
        )
        if result.balanced_accuracy is not None and result.precision is not None and result.recall is not None:
            text += (
                f"; mean balanced accuracy on held-out examples {result.balanced_accuracy:.2f}, "
                f"precision {result.precision:.2f}, recall {result.recall:.2f}"
            )
        self.report_measured(asdict(result), text, [run])
        return 0

    def _explain(self, run: Run, url: str, language_model: str) -> None:
        from mxd.trainer.analysis.labelling.llm_explainer import Endpoint, explain_experts

        endpoint = Endpoint(url, language_model, os.environ.get(KEY_VARIABLE), self.timeout)
        with self.opened() as database, task(f"Explaining {run.name}", "experts") as callbacks:
            result = explain_experts(
                run, database, language_model, endpoint.ask, experts=self.experts, limit=self.limit, callbacks=callbacks
            )
        score = "" if result.balanced_accuracy is None else f", mean balanced accuracy {result.balanced_accuracy:.2f}"
        self.report(
            asdict(result),
            f"{result.run}: {result.labelled:,} experts labelled by {result.labeller}{score}; {result.failed:,} "
            f"without a usable answer, {result.skipped:,} with too few examples to score a label",
        )


def label_run(run: Run, database: Engine) -> LabelResult:
    """Label a run's experts and show progress. Raises UserError if the run has no index, Interrupted if the task was
    cancelled. The labels are unchanged."""
    from mxd.trainer.analysis.labelling.rules import label_experts

    with task(f"Labelling {run.name}", "experts") as callbacks:
        return label_experts(run, database, callbacks=callbacks)


class IndexCommand(ModelCommand):
    """Read text, collect statistics and top examples of every expert, and label the experts.

    Replaces an earlier index of the run.
    """

    examples: ClassVar = (
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 5M",
        "mxd index gpt2-l8-k32 --dataset HuggingFaceFW/fineweb --tokens 20M --top-examples 50",
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 1M --device cuda --json",
    )

    shares_work: ClassVar = True

    name: Positional[str]
    """Name or folder of the run."""
    config: IndexConfig
    cache: Path | None = None
    """Folder of activations that mxd train --cache wrote for the same dataset. The text is then read from it, in its
    order, without forward passes of the language model."""

    def run(self) -> int:
        from mxd.trainer.analysis.indexing.build import build_index
        from mxd.trainer.data.activation_cache import ActivationCache
        from mxd.trainer.utils.distributed import init_process_group
        from mxd.trainer.utils.memory import keep_freed_memory

        (run,) = self.load_runs([self.name])
        config = self.config.model_copy(update={"text": with_context_of(run, self.config.text)})
        # torchrun stops all processes if one fails. They listen until they have found out which.
        with self.opened() as database, stoppable() as stop, init_process_group() as group:
            keep_freed_memory()
            language_model = self.load_language_model(run.language_model_source, group)
            with progress_of(group, f"Indexing {run.name}") as progress:
                result = build_index(
                    run,
                    config,
                    language_model,
                    database,
                    group=group,
                    cache=ActivationCache.open(self.cache, language_model.device) if self.cache else None,
                    callbacks=Callbacks(progress, stop),
                )
            labels = label_run(run, database) if group.is_main else None
        if labels is None:
            return 0
        self.report(
            {**asdict(result), "labelled": labels.labelled},
            f"{result.run}: {result.tokens:,} tokens, {result.examples:,} top examples, "
            f"{result.active_experts:,} active experts, {labels.labelled:,} labelled, "
            f"normalised MSE {result.normalized_mse:.4f}",
        )
        return 0


def with_context_of(run: Run, text: TextConfig) -> TextConfig:
    """Return ``text`` with the context length and start token that the run was trained with, unless given."""
    trained = run.config.text.model_dump(include={"context_length", "start_token"})
    return text.model_copy(update={name: trained[name] for name in trained if name not in text.model_fields_set})
