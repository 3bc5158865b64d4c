"""``mxd route``: which experts fire on each token of a text."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.trainer.config import Size
from mxd.trainer.inference.results import PredictedToken, RoutedToken


class RouteCommand(ModelCommand):
    """Show which experts fire on each token of a text, and how much the layer changes the next-token distribution."""

    examples: ClassVar = (
        "mxd route gpt2-l8-k32 'The quick brown fox'",
        "mxd route gpt2-l8-k32 'The quick brown fox' --top 10",
        "mxd route gpt2-l8-k32 'The quick brown fox' --k 8 --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    text: Positional[str]
    """Text to route."""
    top: Annotated[int, Field(ge=1)] = 5
    """Experts shown per token. --json always lists all."""
    k: Size | None = None
    """Active experts per token, the strongest first (default: the run's K)."""

    def run(self) -> int:
        """Route, and print one line per token."""
        from mxd.trainer.inference.routing import predict, route_together
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_sets import text_ids

        run = Run.load(self.name, self.settings().data)
        language_model = self.load_language_model(run.language_model_source)
        ids = text_ids(language_model, [run], self.text)
        (routing,) = route_together(language_model, [run], ids, self.k)
        predictions = predict(language_model, run, ids, self.k)
        pairs = zip(routing.tokens, predictions.tokens, strict=True)
        lines = (_line(token, prediction, self.top) for token, prediction in pairs)
        result = {"run": run.name, "tokens": routing.tokens, "predictions": predictions.tokens}
        self.report(result, "\n".join(lines))
        return 0


def _line(token: RoutedToken, prediction: PredictedToken, top: int) -> str:
    shown = "  ".join(f"{expert.expert}:{expert.coefficient:.3f}" for expert in token.experts[:top])
    more = len(token.experts) - top
    return f"{token.text!r:<16} KL {prediction.kl:.3f}  {shown}{f'  and {more} more' if more > 0 else ''}"
