"""``mxd route``: which experts are active on each token of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command

if TYPE_CHECKING:
    from trainer.routing import RoutedToken, Routing


class RouteCommand(Command):
    """Show which experts are active on each token of a text."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    text: CliPositionalArg[str]
    """What to route."""
    top: Annotated[int, Field(ge=1)] = 5
    """Experts shown a token; --json always has all."""
    device: str = "auto"
    """Where the language model runs: auto, cpu or cuda."""

    def run(self) -> int:
        """Route, and print it token by token."""
        from trainer.language_model import LanguageModel
        from trainer.routing import route
        from trainer.run import Run

        run = Run.load(self.name, self.settings().data)
        language_model = LanguageModel.load(run.language_model_source, self.device)
        routing = route(language_model, run, self.text)
        self.report(_as_json(routing), "\n".join(_line(token, self.top) for token in routing.tokens))
        return 0


def _as_json(routing: Routing) -> dict[str, Any]:
    tokens = [
        {
            "id": token.id,
            "text": token.text,
            "start": token.start,
            "kl": token.kl,
            "experts": [[expert.expert, expert.coefficient] for expert in token.experts],
            "shares": [expert.share for expert in token.experts],
        }
        for token in routing.tokens
    ]
    return {"run": routing.run, "tokens": tokens}


def _line(token: RoutedToken, top: int) -> str:
    shown = "  ".join(f"{expert.expert}:{expert.coefficient:.3f}" for expert in token.experts[:top])
    more = len(token.experts) - top
    return f"{token.text!r:<16} KL {token.kl:.3f}  {shown}{f'  and {more} more' if more > 0 else ''}"
