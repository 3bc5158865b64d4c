"""``mxd find``: experts that make the language model say something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import task
from mxd.backend.cli.options import nest
from mxd.backend.cli.parser import validate
from mxd.trainer.config import Edit
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.errors import NotFoundError

if TYPE_CHECKING:
    from mxd.trainer.analysis.results import EditEffect, FoundExpert, FoundExperts, FoundGroup


class FindCommand(ModelCommand):
    """Find the experts that make wanted text more probable, over all layers at once, and combine them.

    One backward pass predicts what one unit of every expert would do, whether it is active or not. The best experts are
    measured. The price of an edit is the KL divergence on unrelated text, beside that of random experts at the same
    strength.
    """

    examples: ClassVar = (
        "mxd find smollm2-l22 --prompt 'The doctor told him to take the' --wanted ' medicine'",
        "mxd find l6 l7 l8 --prompt 'He was' --prompt 'She felt' --wanted ' happy' --wanted ' glad' --unwanted ' sad'",
        "mxd find l8 --prompt 'Dear Sir,' --wanted ' I am writing to you' --unwanted ' Hey, what is up' --json",
    )

    names: Positional[list[str]]
    """Names or folders of runs of different layers of one language model."""
    prompt: tuple[str, ...]
    """Text before the wanted one; repeatable. Effects are averaged over the prompts."""
    wanted: tuple[str, ...] = ()
    """Continuation that shall become more probable, with its leading space; repeatable."""
    unwanted: tuple[str, ...] = ()
    """Continuation that shall become less probable, with its leading space; repeatable."""
    flags: Annotated[
        dict[str, Any], FlagsOf(FindConfig, without=frozenset({"prompts", "wanted", "unwanted", "unrelated"}))
    ] = Field(default_factory=dict)

    def run(self) -> int:
        """Search, measure, and print one line per expert and the combination."""
        from mxd.trainer.analysis.effect_search import combine, find, measure
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_sets import check_compatible_runs

        given = {"prompts": self.prompt, "wanted": self.wanted, "unwanted": self.unwanted}
        config = validate(FindConfig, {**nest(FindConfig, self.flags), **given}, type(self), "mxd find")
        runs = [Run.load(name, self.settings().data) for name in self.names]
        check_compatible_runs(runs)
        language_model = self.load_language_model(runs[0].language_model_source)
        with task("Searching", "steps") as callbacks:
            found = find(language_model, runs, config, callbacks=callbacks)
            edits = [(expert.edit,) for expert in found.experts]
            effects = measure(language_model, runs, config, edits, callbacks=callbacks)
            group = combine(language_model, runs, config, callbacks=callbacks)
        labels = self._labels([*(expert.edit for expert in found.experts), *group.edits])
        result = {**asdict(found), "effects": [asdict(effect) for effect in effects], "combination": asdict(group)}
        self.report_measured(result, _format_result(config, runs[0].name, found, effects, group, labels), runs)
        return 0

    def _labels(self, edits: Sequence[Edit]) -> dict[tuple[str, int], str]:
        """Return the labels of the edited experts that are in the database, if there is one."""
        from mxd.backend.cli.databases import existing_database
        from mxd.backend.database.annotations import labels_of
        from mxd.backend.database.engine import reading
        from mxd.backend.queries.automatic_labels import shown_labels
        from mxd.backend.queries.runs import find_run

        labels: dict[tuple[str, int], str] = {}
        for run in dict.fromkeys(edit.run or "" for edit in edits):
            experts = {edit.expert for edit in edits if edit.run == run}
            try:
                with existing_database(self.settings()) as database, reading(database) as session:
                    automatic = shown_labels(session, find_run(session, run), experts)
                    labels |= {(run, expert): label.label for expert, label in automatic.items()}
                    labels |= {(run, expert): label for expert, label in labels_of(session, run, experts).items()}
            except NotFoundError:
                continue
        return labels


def _format_result(
    config: FindConfig,
    run: str,
    found: FoundExperts,
    effects: Sequence[EditEffect],
    group: FoundGroup,
    labels: dict[tuple[str, int], str],
) -> str:
    what = "of the wanted text" if config.wanted else "that no unwanted text follows"
    lines = [f"Probability {what}: {found.probability:.2%} without edits."]
    lines += [_line(expert, effect, labels) for expert, effect in zip(found.experts, effects, strict=True)]
    if not group.edits:
        return "\n".join([*lines, "No combination is needed." if group.reached else "No expert helps."])
    effect, share = group.effect, f"{config.probability:.0%}"
    lines.append(
        f"Together, {len(group.edits)} experts make it {effect.probability:.2%} "
        f"({'reached' if group.reached else 'below'} {share}): predicted {group.predicted:+.2f}, measured "
        f"{effect.change:+.2f} nats; price {effect.price:.3f}, random experts {effect.random_price:.3f} nats per token."
    )
    edits = " ".join(f"--edit {quote(str(edit))}" for edit in group.edits)
    return "\n".join([*lines, f"Run: mxd steer {run} {quote(config.prompts[0])} {edits}"])


def _line(expert: FoundExpert, effect: EditEffect, labels: dict[tuple[str, int], str]) -> str:
    label = labels.get((expert.edit.run or "", expert.edit.expert), "no label")
    return (
        f"{expert.edit}  {expert.per_unit:+.2f} nats per unit; predicted {expert.predicted:+.2f}, measured "
        f"{expert.change:+.2f} nats, {expert.probability:.2%}; price {effect.price:.3f}, random expert "
        f"{effect.random_price:.3f}  {label}"
    )
