"""``mxd explain``: labels from a language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import task
from mxd.trainer.errors import UserError

KEY_VARIABLE = "MXD_ENDPOINT_KEY"


class ExplainCommand(Command):
    """Ask a language model for expert labels and score each label on held-out examples.

    Each label is saved as soon as it is scored. Rerun the same command to continue. Set MXD_ENDPOINT_KEY if the
    endpoint needs an API key.
    """

    examples: ClassVar = (
        "mxd explain gpt2-l8-k32 --endpoint http://127.0.0.1:11434/v1 --language-model llama3.1",
        "mxd explain gpt2-l8-k32 --endpoint http://127.0.0.1:8080/v1 --language-model qwen3 --experts 12,40",
        "mxd explain gpt2-l8-k32 --endpoint https://api.openai.com/v1 --language-model gpt-4o-mini --limit 500",
    )

    name: Positional[str]
    """Name or folder of the run."""
    endpoint: str
    """URL of an OpenAI-compatible endpoint, such as http://127.0.0.1:11434/v1."""
    language_model: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the language model at the endpoint."""
    limit: Annotated[int, Field(gt=0)] = 100
    """Maximum number of experts to label, those with the largest activations first."""
    experts: list[Annotated[int, Field(ge=0)]] | None = None
    """Label only these experts."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds to wait for an answer."""

    def run(self) -> int:
        """Label experts, and print the scores of the labels."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.labelling.llm_explainer import Endpoint, explain_experts
        from mxd.trainer.storage.run import Run

        if not self.endpoint.startswith(("http://", "https://")):
            raise UserError(f"Invalid --endpoint: '{self.endpoint}'. It must start with http:// or https://.")
        settings = self.settings()
        run = Run.load(self.name, settings.data)
        endpoint = Endpoint(self.endpoint, self.language_model, os.environ.get(KEY_VARIABLE), self.timeout)
        with opened(settings.database_url) as database, task(f"Explaining {run.name}", "experts") as callbacks:
            result = explain_experts(
                run,
                database,
                self.language_model,
                endpoint.ask,
                experts=self.experts,
                limit=self.limit,
                callbacks=callbacks,
            )
        score = "" if result.balanced_accuracy is None else f", mean balanced accuracy {result.balanced_accuracy:.2f}"
        self.report(
            asdict(result),
            f"{result.run}: {result.labelled:,} experts labelled by {result.labeller}{score}; {result.failed:,} "
            f"without a usable answer, {result.skipped:,} with too few examples to score a label",
        )
        return 0
