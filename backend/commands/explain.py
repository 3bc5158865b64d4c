"""``mxd explain``: ask a language model behind an OpenAI-compatible endpoint to name experts, and test each name."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import progress, stoppable
from trainer.errors import UserError

KEY_VARIABLE = "MXD_ENDPOINT_KEY"


class ExplainCommand(Command):
    """Ask for labels, and test each on text held back. Each is kept as soon as it is tested: stopped, the same command
    goes on where it was. A key for the endpoint is read from the variable MXD_ENDPOINT_KEY."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    endpoint: str
    """Address of an OpenAI-compatible endpoint, such as http://127.0.0.1:11434/v1."""
    language_model: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the language model there."""
    limit: Annotated[int, Field(gt=0)] = 100
    """Experts to label in this call, those with the largest coefficients first."""
    expert: list[Annotated[int, Field(ge=0)]] | None = None
    """Only these experts."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds to wait for an answer."""

    def run(self) -> int:
        """Ask, and say how it went."""
        from backend.database import opened
        from trainer.labelling.endpoint import Endpoint
        from trainer.labelling.explain import explain_experts
        from trainer.run import Run

        if not self.endpoint.startswith(("http://", "https://")):
            raise UserError(f"--endpoint must be an address that begins with http:// or https://, not {self.endpoint}.")
        settings = self.settings()
        run = Run.load(self.name, settings.data)
        endpoint = Endpoint(self.endpoint, self.language_model, os.environ.get(KEY_VARIABLE), self.timeout)
        with (
            opened(settings.store_url) as store,
            stoppable() as stop,
            progress(f"Explaining {run.name}", "experts") as shown,
        ):
            result = explain_experts(
                run,
                store,
                self.language_model,
                endpoint.ask,
                experts=self.expert,
                limit=self.limit,
                progress=shown,
                should_stop=stop,
            )
        score = "" if result.balanced_accuracy is None else f", mean balanced accuracy {result.balanced_accuracy:.2f}"
        self.report(
            asdict(result),
            f"{result.run}: {result.explained:,} experts explained by {result.maker}{score}; {result.failed:,} without "
            f"a usable answer, {result.left:,} with too few contexts to test a label",
        )
        return 0
