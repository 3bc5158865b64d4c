"""``mxd steer``: a prompt continued as it is and with edits."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command, part_of
from backend.commands.console import progress
from trainer.config import Apply, Edit, Sampling, Scope, Size, SteeringConfig
from trainer.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from backend.settings import Settings
    from trainer.run import Run
    from trainer.steering import SteeringStep


class SteerCommand(Sampling, Command):
    """Continue a prompt twice: as the language model would, and with edits to its experts."""

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    prompt: CliPositionalArg[str]
    """What to go on from."""
    edit: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """EXPERT:scale:FACTOR, EXPERT:add:UNITS, EXPERT:set:UNITS or EXPERT:off; a unit is the expert's 99th percentile.
    RUN/EXPERT:… for a run of another layer. Give it several times for several edits."""
    positions: str | None = None
    """Tokens of the prompt that the edits touch, whatever the scope, as 1,4,5 (0 is the start token), or none."""
    apply: Apply = "on-top"
    """on-top: the untouched MLP plus the difference that the edits make. replace: the run's layer in its place."""
    scope: Scope = "all"
    """Which tokens the edits touch: all, generated ones only, or the prompt's only."""
    k: Size | None = None
    """Experts of each token that the gate lets through, the strongest first; by default the run's K."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Generate, and print both continuations."""
        from trainer.language_model import LanguageModel
        from trainer.run import Run
        from trainer.steering import steer

        settings = self.settings()
        config = SteeringConfig(
            prompt=self.prompt,
            edits=tuple(parse_edit(word) for word in self.edit),
            apply=self.apply,
            scope=self.scope,
            k=self.k,
            positions=None if self.positions is None else parse_positions(self.positions),
            sampling=part_of(Sampling, self),
        )
        run = Run.load(self.name, settings.data)
        others = dict.fromkeys(edit.run for edit in config.edits if edit.run)
        runs = [run, *(Run.load(name, settings.data) for name in others if name != run.name)]
        units = {each.name: _units(settings, each, _experts(config, each.name, run.name)) for each in runs}
        for each in runs:
            _say_what_is_not_known(config, each.name, run.name, units[each.name])
        language_model = LanguageModel.load(run.language_model_source, self.device)
        result = _collect(steer(language_model, runs, config, units), self.max_tokens)
        arms = "\n".join(f"{arm}: {self.prompt}{result[arm]['text']}" for arm in ("default", "steered"))
        self.report({"run": run.name, "prompt": self.prompt, **result}, arms)
        return 0


def parse_edit(word: str) -> Edit:
    """``12:scale:3``, ``40:off`` or ``other-run/7:add:2`` as an edit.

    Raises:
        UserError: it is neither of that kind.
    """
    run, _, own = word.rpartition("/")
    expert, _, rest = own.partition(":")
    mode, given, strength = rest.partition(":")
    try:
        return Edit.model_validate(
            {"expert": expert, "mode": mode, "run": run or None} | ({"strength": strength} if given else {})
        )
    except ValidationError as error:
        raise UserError(
            f"The edit {word} cannot be read; "
            "write EXPERT:scale:FACTOR, EXPERT:add:UNITS, EXPERT:set:UNITS or EXPERT:off."
        ) from error


def parse_positions(word: str) -> tuple[int, ...]:
    """``1,4,5`` as positions; ``none`` as no position.

    Raises:
        UserError: it is neither.
    """
    try:
        return () if word == "none" else tuple(int(part) for part in word.split(","))
    except ValueError as error:
        raise UserError(f"The positions {word} cannot be read; write whole numbers as 1,4,5, or none.") from error


def _experts(config: SteeringConfig, run: str, steered: str) -> list[int]:
    """Those of one run that are edited."""
    return [edit.expert for edit in config.edits if (edit.run or steered) == run]


def _units(settings: Settings, run: Run, experts: list[int]) -> Mapping[int, float]:
    """The experts' 99th percentiles: those of the store, which the dashboard takes, or else those beside the run."""
    from backend.database import open_database, reading
    from backend.queries.experts import known
    from backend.queries.runs import find_run

    units = {expert: run.units[expert] for expert in experts if expert in run.units}
    store = open_database(settings.store_url)
    try:
        with reading(store) as session:
            records = known(session, find_run(session, run.name), experts)
        return units | {expert: record.p99 for expert, record in records.items()}
    except NotFoundError:
        return units
    finally:
        store.dispose()


def _say_what_is_not_known(config: SteeringConfig, run: str, steered: str, units: Mapping[int, float]) -> None:
    in_units = {edit.expert for edit in config.edits if edit.mode in ("add", "set") and (edit.run or steered) == run}
    unknown = sorted(expert for expert in in_units if not units.get(expert))
    if unknown:
        experts = ", ".join(str(expert) for expert in unknown)
        print(
            f"mxd: the 99th percentile of expert {experts} is not known, so its unit is a coefficient of 1; "
            "index the run with mxd index to have it measured.",
            file=sys.stderr,
        )


def _collect(steps: Iterable[SteeringStep], max_tokens: int) -> dict[str, Any]:
    from trainer.steering import Done, NewToken

    arms: dict[str, dict[str, Any]] = {arm: {"text": "", "tokens": 0, "kl": 0.0} for arm in ("default", "steered")}
    seconds = 0.0
    with progress("Generating") as shown:
        for step in steps:
            if isinstance(step, NewToken):
                arm = arms[step.arm]
                arm["text"] += step.text
                arm["tokens"] += 1
                arm["kl"] += step.kl
                shown(step.position + 1, max_tokens, "")
            elif isinstance(step, Done):
                arms["default"]["reason"], arms["steered"]["reason"] = step.default_reason, step.steered_reason
                seconds = step.seconds
    for arm in arms.values():
        arm["kl"] /= max(arm["tokens"], 1)
    return {**arms, "seconds": seconds}
