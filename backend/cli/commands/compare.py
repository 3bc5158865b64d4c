"""``mxd recurrence`` and ``mxd contrast``: experts that other seeds find again, and that tell two texts apart."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import ModelCommand, Positional
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import ContrastConfig, RecurrenceConfig, TextConfig
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.trainer.analysis.contrast import NamedText
    from mxd.trainer.analysis.results import Contrast, ContrastExample, Recurrence
    from mxd.trainer.utils.bootstrap import Interval


RECURRENCE_HEADER = (
    "other run",
    "found again",
    "95 %",
    "by chance",
    "firing cosine",
    "by chance",
    "writing cosine",
    "by chance",
)


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
        from mxd.trainer.analysis.recurrence import measure_recurrence, save_recurrence

        if len(self.names) < 2:
            raise UserError("Name at least two runs: the one to describe, and another seed of it.")
        run, *others = self.load_runs(self.names)
        language_model = self.load_language_model(run.language_model_source)
        with self.opened() as database, task(f"Comparing {run.name}", "tokens") as callbacks:
            result = measure_recurrence(run, others, self.config, language_model, callbacks)
            is_stored = save_recurrence(database, result, self.config)
        stored = "Stored with the experts." if is_stored else f"Not stored, because {run.name} is not indexed."
        document = {**asdict(result), "is_stored": is_stored}
        self.report_measured(document, f"{_recurrence_table(result)}\n{stored}", [run, *others], [self.config.text])
        return 0


def _recurrence_table(result: Recurrence) -> str:
    rows = [
        (
            each.run,
            f"{each.found_again.value:.1%}",
            _interval(each.found_again),
            f"{each.chance:.1%}",
            f"{each.firing_cosine:.3f}",
            f"{each.chance_firing_cosine:.3f}",
            f"{each.writing_cosine:.3f}",
            f"{each.chance_writing_cosine:.3f}",
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
    return "\n".join([head, *columns(RECURRENCE_HEADER, rows), everywhere])


def _interval(interval: Interval) -> str:
    return f"{interval.low:.1%} to {interval.high:.1%}"


CONTRAST_HEADER = ("expert", "density A", "density B", "ratio", "95 %", "q", "example")
SHOWN_BEFORE, SHOWN_AFTER = 8, 6
"""Tokens of an example in the table around its peak."""


class ContrastCommand(ModelCommand):
    """Find the experts that are active more often in text A than in text B, or less often.

    The ratio of activation densities has a 95 % interval over documents, and q-values correct for the number of
    experts. Random assignments of the documents show how many experts are found by chance.
    """

    examples: ClassVar = (
        "mxd contrast gpt2-l8-k32 --a stories.jsonl --b code.jsonl",
        "mxd contrast gpt2-l8-k32 --a labelled.jsonl --kind-a letter --kind-b news",
        "mxd contrast gpt2-l8-k32 --a before.jsonl --b after.jsonl --tokens 20k --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    a: str
    """Text A: a .txt, .jsonl, .csv or .parquet file, a folder of them, or a Hub dataset. One line or row is one
    document."""
    b: str | None = None
    """Text B. Default: the file of text A, of which --kind-a and --kind-b choose two kinds."""
    kind_a: str | None = None
    """Kind of the documents of text A, for a file with labels. Default: all documents."""
    kind_b: str | None = None
    """Kind of the documents of text B. Default: all documents."""
    kind_column: str = "kind"
    """Field or column of the kind. Default: kind."""
    column: str = "text"
    """Field or column of the text. Default: text."""
    config: ContrastConfig

    def run(self) -> int:
        from mxd.trainer.analysis.contrast import contrast

        (run,) = self.load_runs([self.name])
        a, b = self._text(self.a, self.kind_a), self._text(self.b or self.a, self.kind_b)
        if (self.b or self.a, self.kind_b) == (self.a, self.kind_a):
            raise UserError("Text A and text B are the same. Give another file as --b, or two kinds.")
        language_model = self.load_language_model(run.language_model_source)
        with task(f"Contrasting {a.name} and {b.name}", "tokens") as callbacks:
            result = contrast(run, a, b, self.config, language_model, callbacks)
        texts = [TextConfig(dataset=dataset, column=self.column) for dataset in (self.a, self.b or self.a)]
        self.report_measured(asdict(result), _contrast_table(result, language_model.tokenizer), [run], texts)
        return 0

    def _text(self, dataset: str, kind: str | None) -> NamedText:
        from mxd.trainer.analysis.contrast import text_of_file, text_of_kind

        text = TextConfig(dataset=dataset, column=self.column)
        if kind is None:
            return text_of_file(text, self.config.seed)
        return text_of_kind(text, kind, self.kind_column, self.config.seed)


def _contrast_table(result: Contrast, tokenizer: PreTrainedTokenizerBase) -> str:
    head = (
        f"{result.run}: A = {result.a.name} ({result.a.units:,} {result.unit}s, {result.a.tokens:,} tokens), "
        f"B = {result.b.name} ({result.b.units:,} {result.unit}s, {result.b.tokens:,} tokens)"
    )
    found = (
        f"{result.found_a:,} experts are found more often in A and {result.found_b:,} in B (q ≤ 0.05), of "
        f"{result.tested:,} tested with at least {result.min_tokens} active tokens in {result.min_units} {result.unit}s"
    )
    if (chance := result.chance) is not None:
        found += f"; {chance.mean_found:.1f} by chance (mean of {chance.shuffles} random assignments)"
    lines = [head, found]
    if result.unit == "sequence":
        lines.append("Sequences of one document are not independent, so the intervals are too narrow. Add documents.")
    for title, is_in_a in (("More often in A", True), ("More often in B", False)):
        shown = [
            each for each in result.experts if each.expert in result.examples and (each.ratio.value > 1) == is_in_a
        ]
        if shown:
            examples = [result.examples[each.expert] for each in shown]
            strongest = [next(iter(both.a if is_in_a else both.b), None) for both in examples]
            rows = [
                (
                    str(each.expert),
                    f"{each.density_a:.3%}",
                    f"{each.density_b:.3%}",
                    f"{each.ratio.value:.3g}",
                    f"{each.ratio.low:.3g} to {each.ratio.high:.3g}",
                    f"{each.q_value:.1g}",
                    _excerpt(example, tokenizer) if example else "",
                )
                for each, example in zip(shown, strongest, strict=True)
            ]
            lines += ["", title, *columns(CONTRAST_HEADER, rows)]
    return "\n".join(lines)


def _excerpt(example: ContrastExample, tokenizer: PreTrainedTokenizerBase) -> str:
    from mxd.trainer.language_model.tokenizer import token_texts

    texts = token_texts(tokenizer, list(example.token_ids))
    peak, first = example.position, max(0, example.position - SHOWN_BEFORE)
    before, after = "".join(texts[first:peak]), "".join(texts[peak + 1 : peak + 1 + SHOWN_AFTER])
    return " ".join(f"{before}«{texts[peak]}»{after}".split())
