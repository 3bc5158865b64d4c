"""``mxd route``: which experts are active on each token of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from trainer.config import Size

if TYPE_CHECKING:
    from trainer.predictions import PredictedToken
    from trainer.routing import RoutedToken


class RouteCommand(Command):
    """Show which experts are active on each token of a text."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    text: CliPositionalArg[str]
    """What to route."""
    top: Annotated[int, Field(ge=1)] = 5
    """Experts shown a token; --json always has all."""
    k: Size | None = None
    """Experts of each token that are let through, the strongest first; by default the run's K."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Route, and print it token by token."""
        from trainer.language_model import LanguageModel
        from trainer.predictions import predict
        from trainer.routing import route
        from trainer.run import Run

        run = Run.load(self.name, self.settings().data)
        language_model = LanguageModel.load(run.language_model_source, self.device)
        routing = route(language_model, run, self.text, self.k)
        predictions = predict(language_model, run, self.text, self.k)
        pairs = list(zip(routing.tokens, predictions.tokens, strict=True))
        lines = (_line(token, expected, self.top) for token, expected in pairs)
        self.report(_as_json(routing.run, pairs), "\n".join(lines))
        return 0


def _as_json(run: str, pairs: Sequence[tuple[RoutedToken, PredictedToken]]) -> dict[str, Any]:
    tokens = [
        {
            "id": token.id,
            "text": token.text,
            "start": token.start,
            "kl": expected.kl,
            "experts": [[expert.expert, expert.coefficient] for expert in token.experts],
            "shares": [expert.share for expert in token.experts],
            "shares_in_layers": [expert.shares for expert in token.experts],
        }
        for token, expected in pairs
    ]
    return {"run": run, "tokens": tokens}


def _line(token: RoutedToken, expected: PredictedToken, top: int) -> str:
    shown = "  ".join(f"{expert.expert}:{expert.coefficient:.3f}" for expert in token.experts[:top])
    more = len(token.experts) - top
    return f"{token.text!r:<16} KL {expected.kl:.3f}  {shown}{f'  and {more} more' if more > 0 else ''}"
