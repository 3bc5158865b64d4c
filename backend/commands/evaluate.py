"""``mxd evaluate``: what runs add to the loss, and whether their experts do anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import StopRequest, progress, stoppable
from backend.commands.sweep import Several
from backend.commands.tables import columns
from trainer.config import Count, EvaluateConfig, Size, TextConfig
from trainer.errors import UserError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from trainer.evaluation.evaluate import Measured, Session
    from trainer.run import Run

    Measure = Callable[[Session], Measured]

Result = dict[str, Any]


class EvaluateCommand(TextConfig, Command):
    """Measure runs on text that they were not fitted on: loss, faithfulness, health of the experts.

    What was measured before on the same text is taken from the store, so a command that was stopped goes on.
    """

    names: CliPositionalArg[list[str]]
    """Names of the runs, or their folders; all of one language model."""
    tokens: Count
    """Tokens to read, such as 100k."""
    other_text: str | None = None
    """A second text, of another kind, to be measured side by side."""
    together: bool = False
    """Also put all the runs in place at once; they must be of different layers."""
    added: bool = False
    """Also put the runs in place one by one, from the first layer to the last; they must be of different layers."""
    k: Several[Size | None] = (None,)
    """K', experts of each token that are let through, the strongest first; several with commas. By default each run's
    K."""
    seen_text: bool = False
    """Allow the text that a run was fitted on."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the bootstrap, and of which experts are sampled."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 1000
    """Of the bootstrap."""
    prompts: Annotated[int, Field(ge=0, le=4096)] = 32
    """Sequences whose beginning is continued greedily, to compare the continuations."""
    always_on: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Usage from which an expert counts as always on."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Measure, and say what was found."""
        from backend.database import opened
        from trainer.registration import register_run
        from trainer.run import Run

        settings = self.settings()
        runs = [Run.load(name, settings.data) for name in self.names]
        _refuse_mixed(runs)
        self._refuse_ks(runs)
        with opened(settings.store_url) as store, stoppable() as stop:
            for run in runs:
                register_run(run, store)
            results = self._measure(runs, store, stop)
        self.report(results, _in_words(results))
        return 0

    def _measure(self, runs: Sequence[Run], store: Engine, stop: StopRequest) -> list[Result]:
        """Every run on the first text, each with what it gave on the second one."""
        first = self._on(self.text, runs, store, stop)
        if self.other_text is None:
            return first
        second = self._on(self.other_text, runs, store, stop)
        return [{**one, "other_text": other} for one, other in zip(first, second, strict=True)]

    def _refuse_ks(self, runs: Sequence[Run]) -> None:
        chosen = [k for k in self.k if k is not None]
        if chosen and (self.together or self.added):
            raise UserError("Runs are put in together with their own K; leave --k out, or --together and --added.")
        for run in runs if chosen else ():
            run.at_k(max(chosen))

    def _on(self, text: str, runs: Sequence[Run], store: Engine, stop: StopRequest) -> list[Result]:
        from dataclasses import replace

        from trainer.evaluation.added import evaluate_added, in_order, subject_of
        from trainer.evaluation.evaluate import evaluate, evaluate_together, subject_at
        from trainer.evaluation.seen import is_seen, refuse_seen
        from trainer.evaluation.write import stored, weights_digest, write_evaluation
        from trainer.text import fingerprint

        config = self._config(text, runs[0])
        if self.together or self.added:
            in_order(runs)  # what cannot be put in together is said before anything is measured
        if not self.seen_text:
            for run in runs:
                refuse_seen(run.name, config.text, run.config.text)
        digest = fingerprint(config.text)
        opened = _Opened(config, runs[0], self.device, stop)

        def one(members: Sequence[Run], subject: str, measure: Measure, k: int | None = None) -> Result:
            weights = weights_digest(members)
            chosen = config.model_copy(update={"k": k})
            known = stored(store, subject, digest, chosen, weights)
            if known is not None:
                return known
            with progress(f"Evaluating {subject}") as shown:
                measured = measure(replace(opened.session(shown), config=chosen))
            return write_evaluation(store, measured, members[0].name, chosen, digest, weights)

        def alone(session: Session, run: Run) -> Measured:
            return evaluate(session, run, is_seen(config.text, run.config.text))

        found = [one([run], subject_at(run.name, k), partial(alone, run=run), k) for run in runs for k in self._ks(run)]
        single = [result["delta_ce"]["value"] for result in found]
        if self.together:
            subject = " + ".join(run.name for run in runs)
            found.append(one(runs, subject, partial(evaluate_together, runs=runs, single=single)))
        if self.added:
            found.append(one(in_order(runs), subject_of(runs), partial(evaluate_added, runs=runs, single=single)))
        return found

    def _ks(self, run: Run) -> list[int | None]:
        """None where it is the run's own."""
        return [None if k == run.layer_config.k else k for k in self.k]

    def _config(self, text: str, run: Run) -> EvaluateConfig:
        # Fitted on sequences of one length, a layer is measured on sequences of that length unless told otherwise.
        context = self.context if "context" in self.model_fields_set else run.config.text.context
        return part_of(EvaluateConfig, self, text=part_of(TextConfig, self, text=text, context=context), k=None)


class _Opened:
    """The language model and the text, read when the first run has to be measured."""

    def __init__(self, config: EvaluateConfig, run: Run, device: str, stop: StopRequest) -> None:
        self.config, self.run, self.device, self.stop = config, run, device, stop
        self._session: Session | None = None

    def session(self, shown: Any) -> Session:
        """On the text, with progress that goes to ``shown``."""
        from dataclasses import replace

        from trainer.evaluation.evaluate import Session
        from trainer.language_model import LanguageModel

        if self._session is None:
            language_model = LanguageModel.load(self.run.language_model_source, self.device)
            self._session = Session.open(self.config, language_model, shown, self.stop)
        return replace(self._session, progress=shown)


def _refuse_mixed(runs: Sequence[Run]) -> None:
    sources = {run.language_model_source for run in runs}
    if len(sources) > 1:
        raise UserError(
            f"The runs are of several language models ({', '.join(sorted(sources))}); evaluate one at a time."
        )
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise UserError("A run is named twice; name each once.")


def _in_words(results: Sequence[Result]) -> str:
    rows = [row for result in results for row in _rows(result)]
    single = [result for result in results if "verdicts" in result]
    notes = [
        f"{_named(result)}: {verdict['text']}"
        for result in single
        for verdict in result["verdicts"]
        if verdict["level"] != "note"
    ]
    return "\n".join([*columns(HEAD, rows), *notes])


HEAD = ("run", "added loss", "95 %", "recovered", "KL", "norm. MSE", "L0", "routing", "dead")


def _rows(result: Result) -> list[tuple[str, ...]]:
    if "steps" in result:
        return [_row({**step, "loss_recovered_mean": {"value": None}}, f"+ {step['run']}") for step in result["steps"]]
    rows = [_row(result, _named(result))]
    if "other_text" in result:
        rows.append(_row(result["other_text"], "  on the other text"))
    return rows


def _named(result: Result) -> str:
    """The run, and at which K it was measured where that is not its own."""
    is_own = result.get("fitted_k", result.get("k")) == result.get("k")
    return str(result["run"]) if is_own else f"{result['run']} at K {result['k']}"


def _row(result: Result, name: str) -> tuple[str, ...]:
    delta, recovered = result["delta_ce"], result["loss_recovered_mean"]["value"]
    figures = (
        f"{delta['value']:+.4f}",
        f"{delta['low']:+.4f} to {delta['high']:+.4f}",
        "" if recovered is None else f"{recovered:.1%}",
        f"{result['kl']:.4f}",
    )
    if "verdicts" not in result:
        return (name, *figures, "", "", "", "")
    share = result["routing_share"]
    return (
        name,
        *figures,
        f"{result['normalised_mse']:.4f}",
        f"{result['l0']:.1f}",
        "" if share is None else f"{share:.2f}",
        f"{result['dead_share']:.0%}",
    )
