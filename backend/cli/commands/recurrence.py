"""``mxd recurrence``: which experts of a run are found again in other seeds of the same layer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import RecurrenceConfig

if TYPE_CHECKING:
    from mxd.trainer.analysis.results import Recurrence
    from mxd.trainer.utils.bootstrap import Interval

HEADER = ("other run", "found again", "95 %", "by chance", "firing cosine", "by chance", "writing cosine", "by chance")


class RecurrenceCommand(ModelCommand):
    """Measure which experts of a run are found again in other runs of the same layer, such as other seeds.

    An expert is found again if its activations and its mean output are similar to those of an expert of the other run,
    above chance, and if the match is mutual. If the first run is indexed, the result is stored and replaces an earlier
    one.
    """

    examples: ClassVar = (
        "mxd recurrence gpt2-l8 gpt2-l8-seed1 gpt2-l8-seed2 --dataset held-out.jsonl --tokens 100k",
        "mxd recurrence gpt2-l8 gpt2-l8-seed1 --dataset held-out.jsonl --tokens 100k --json",
        "mxd recurrence gpt2-l8 gpt2-l8-transcoder --dataset held-out.jsonl --tokens 100k",
    )

    names: Positional[list[str]]
    """Names or folders of the runs. The experts of the first run are compared with those of each other run."""
    config: RecurrenceConfig

    def run(self) -> int:
        """Measure, and print one row per other run."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.analysis.recurrence import measure_recurrence, save_recurrence
        from mxd.trainer.errors import UserError
        from mxd.trainer.storage.run import Run

        if len(self.names) < 2:
            raise UserError("Name at least two runs: the one to describe, and another seed of it.")
        settings = self.settings()
        run, *others = (Run.load(name, settings.data) for name in self.names)
        language_model = self.load_language_model(run.language_model_source)
        with opened(settings.database_url) as database, task(f"Comparing {run.name}", "tokens") as callbacks:
            result = measure_recurrence(run, others, self.config, language_model, callbacks)
            is_stored = save_recurrence(database, result, self.config)
        stored = "Stored with the experts." if is_stored else f"Not stored, because {run.name} is not indexed."
        document = {**asdict(result), "is_stored": is_stored}
        self.report_measured(document, f"{_table(result)}\n{stored}", [run, *others], [self.config.text])
        return 0


def _table(result: Recurrence) -> str:
    rows = [
        (
            each.run,
            f"{each.found_again.value:.1%}",
            _interval(each.found_again),
            f"{each.chance:.1%}",
            *(
                f"{value:.3f}"
                for value in (
                    each.firing_cosine,
                    each.chance_firing_cosine,
                    each.writing_cosine,
                    each.chance_writing_cosine,
                )
            ),
        )
        for each in result.runs
    ]
    head = (
        f"{result.run}: {len(result.experts):,} of {result.num_experts:,} experts measured, those with at least "
        f"{result.min_tokens} active of {result.tokens:,} tokens"
    )
    everywhere = (
        f"Found again in all of {len(result.runs)} other runs: {result.found_in_all.value:.1%} "
        f"({_interval(result.found_in_all)})"
    )
    return "\n".join([head, *columns(HEADER, rows), everywhere])


def _interval(interval: Interval) -> str:
    return f"{interval.low:.1%} to {interval.high:.1%}"
