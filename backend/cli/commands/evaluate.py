"""Measurements of runs and experts: ``mxd evaluate``, ``evaluate-steering``, ``ablate``, ``recurrence``, ``contrast``,
``probe`` and ``benchmark``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional, RunCommand, Several
from mxd.backend.cli.commands.index import with_context_of
from mxd.backend.cli.console import columns, table, task
from mxd.trainer.config.analysis import (
    BENCHMARK_FOLDER,
    AblationConfig,
    BenchmarkConfig,
    ContrastConfig,
    EvaluateConfig,
    ProbeConfig,
    RecurrenceConfig,
    SteeringEvaluationConfig,
)
from mxd.trainer.config.base import Size
from mxd.trainer.config.training import TextConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluation_metrics import HEADINGS, table_cells

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from transformers import PreTrainedTokenizerBase

    from mxd.trainer.analysis.contrast import NamedText
    from mxd.trainer.analysis.results import Contrast, ContrastExample, Recurrence, RunRecurrence
    from mxd.trainer.evaluation.benchmark_results import Benchmark
    from mxd.trainer.evaluation.evaluate import Evaluator, Measurement
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run
    from mxd.trainer.utils.bootstrap import Interval

    Measure = Callable[[Evaluator], Measurement]


Result = dict[str, Any]


class EvaluateCommand(ModelCommand):
    """Evaluate runs on held-out text: loss increase, faithfulness and expert health.

    Results on the same text are cached in the database, so rerunning an interrupted command continues it.
    """

    examples: ClassVar = (
        "mxd evaluate gpt2-l8-k32 --dataset heldout.jsonl --tokens 100k",
        "mxd evaluate gpt2-l8-k32 --dataset heldout.jsonl --tokens 100k --k 4,8,16,32",
        "mxd evaluate l0 l1 l2 --dataset heldout.jsonl --tokens 100k --together --layer-by-layer",
    )

    names: Positional[list[str]]
    """Names or folders of the runs. All must belong to the same language model."""
    config: Annotated[EvaluateConfig, FlagsOf(EvaluateConfig, without=frozenset({"k"}))]
    other_dataset: str | None = None
    """Second dataset of another kind, evaluated side by side."""
    together: bool = False
    """Also evaluate all runs jointly. They must belong to different layers."""
    layer_by_layer: bool = False
    """Also evaluate the runs cumulatively, adding one layer at a time from the first to the last."""
    k: Several[Size | None] = (None,)
    """Active experts per token, the strongest first (default: each run's K)."""
    seen_text: bool = False
    """Allow text that a run was trained on. The result is flagged."""

    def run(self) -> None:
        from mxd.trainer.storage.run_records import register_run
        from mxd.trainer.storage.run_sets import common_language_model

        runs = self.load_runs(self.names)
        common_language_model(runs)
        if len({run.name for run in runs}) < len(runs):
            raise UserError("A run is named twice. Name each run once.")
        chosen = [k for k in self.k if k is not None]
        if chosen and (self.together or self.layer_by_layer):
            raise UserError("--k cannot be combined with --together or --layer-by-layer, which use each run's own K.")
        for run in runs if chosen else ():
            run.at_k(max(chosen))
        with self.opened() as database:
            for run in runs:
                register_run(run, database)
            results = self._measure_on(self.config.text.dataset, runs, database)
            if self.other_dataset is not None:
                others = self._measure_on(self.other_dataset, runs, database)
                results = [{**result, "other_dataset": other} for result, other in zip(results, others, strict=True)]
        datasets = [self.config.text.dataset, *([self.other_dataset] if self.other_dataset else [])]
        texts = [self._config_for(dataset, runs[0]).text for dataset in datasets]
        self.report_measured(results, _format_results(results), runs, texts)

    def _measure_on(self, text: str, runs: Sequence[Run], database: Engine) -> list[Result]:
        from dataclasses import replace

        from mxd.trainer.data.sequences import fingerprint
        from mxd.trainer.evaluation import evaluate as evaluations
        from mxd.trainer.storage.run_sets import UNRECORDED, weights_digest

        config = self._config_for(text, runs[0])
        if self.together or self.layer_by_layer:
            evaluations.sort_by_layer(runs)  # reports incompatible runs before anything is measured
        if not self.seen_text:
            for run in runs:
                evaluations.check_held_out(run.name, config.text, run.config.text)
        digest = fingerprint(config.text)
        opened: list[Evaluator] = []  # when the first run has no cached result

        def measure(members: Sequence[Run], subject: str, evaluation: Measure, k: int | None = None) -> Result:
            weights = weights_digest(members)
            chosen = config.model_copy(update={"k": k})
            cached = evaluations.load_evaluation(database, subject, digest, chosen, weights)
            if cached is not None:
                return {"provenance": UNRECORDED, **cached}
            with task(f"Evaluating {subject}") as callbacks:
                if not opened:
                    language_model = self.load_language_model(runs[0].language_model_source)
                    opened.append(evaluations.Evaluator.open(config, language_model, callbacks))
                measured = evaluation(replace(opened[0], config=chosen, callbacks=callbacks))
            return evaluations.write_evaluation(database, measured, members[0].name, chosen, digest, weights)

        def alone(evaluator: Evaluator, run: Run) -> Measurement:
            return evaluations.evaluate(evaluator, run, evaluations.is_training_text(config.text, run.config.text))

        results = [
            measure([run], evaluations.subject_name(run.name, k), partial(alone, run=run), k)
            for run in runs
            for k in (None if k == run.layer_config.k else k for k in self.k)  # None: the run's own K
        ]
        individual_losses = [result["loss_increase"]["value"] for result in results]
        if self.together:
            subject = " + ".join(run.name for run in runs)
            results.append(
                measure(
                    runs, subject, partial(evaluations.evaluate_jointly, runs=runs, individual_losses=individual_losses)
                )
            )
        if self.layer_by_layer:
            added = partial(evaluations.evaluate_layer_by_layer, runs=runs, individual_losses=individual_losses)
            results.append(measure(evaluations.sort_by_layer(runs), evaluations.layer_by_layer_subject(runs), added))
        return results

    def _config_for(self, text: str, run: Run) -> EvaluateConfig:
        dataset = with_context_of(run, self.config.text).model_copy(update={"dataset": text})
        return self.config.model_copy(update={"text": dataset})


def _format_results(results: Sequence[Result]) -> str:
    named: list[tuple[str, Result]] = []
    warnings = []
    for result in results:
        if "steps" in result:
            named += [(f"+ {step['run']}", {"tokens": result["tokens"], **step}) for step in result["steps"]]
            continue
        own_k = result.get("trained_k", result.get("k")) == result.get("k")
        title = str(result["run"]) if own_k else f"{result['run']} at K {result['k']}"
        named.append((title, result))
        if "other_dataset" in result:
            named.append(("  on the other text", result["other_dataset"]))
        warnings += [f"{title}: {it['text']}" for it in result.get("warnings", ()) if it["level"] != "note"]
    rows = [(name, f"{result['tokens']:,}", *table_cells(result)) for name, result in named]
    return "\n".join([*columns(("run", "tokens", *HEADINGS), rows), *warnings])


STEERING_COLUMNS: tuple[tuple[str, Callable[[tuple[str, float, Mapping[str, float]]], str]], ...] = (
    ("", lambda it: it[0]),
    ("strength", lambda it: f"{it[1]:g}"),
    ("KL", lambda it: f"{it[2]['kl']:.4f}"),
    ("loss", lambda it: f"{it[2]['loss']:.3f}"),
    ("self-similarity", lambda it: f"{it[2]['self_similarity']:.3f}"),
    ("promoted", lambda it: f"{it[2]['promoted_share']:.4f}"),
)


class EvaluateSteeringCommand(RunCommand):
    """Amplify a random sample of experts at several strengths and measure the generated texts.

    Measures the KL divergence of the next token, the loss under the original model, the similarity of samples and the
    share of promoted tokens, next to a random expert of similar density and a random direction of equal length. Run
    'mxd ablate' first.
    """

    examples: ClassVar = (
        "mxd evaluate-steering gpt2-l8-k32",
        "mxd evaluate-steering gpt2-l8-k32 --sampled-experts 50 --strengths 2,4,8",
        "mxd evaluate-steering gpt2-l8-k32 --prompts 'One day,' --prompts 'In the' --json",
    )

    config: SteeringEvaluationConfig

    def run(self) -> None:
        from mxd.trainer.evaluation.steering import evaluate_steering, median_results

        run, language_model = self.loaded()
        with self.opened() as database, task(f"Steering with {run.name}") as callbacks:
            results = evaluate_steering(run, self.config, language_model, database, callbacks=callbacks)
        rows = [
            (kind, strength, median)
            for kind, strengths in median_results(results).items()
            for strength, median in strengths.items()
        ]
        document = {"run": run.name, "results": [asdict(result) for result in results]}
        self.report_measured(document, "\n".join(table(rows, STEERING_COLUMNS)), [run])


class AblateCommand(RunCommand):
    """Ablate and amplify experts on their own examples, and store the effects.

    Measures which tokens an expert promotes, the loss increase when it is ablated, and the KL divergence when it is
    amplified. Replaces earlier measurements of the same experts. The run must have been indexed.
    """

    examples: ClassVar = (
        "mxd ablate gpt2-l8-k32",
        "mxd ablate gpt2-l8-k32 --experts 46,609,4078",
        "mxd ablate gpt2-l8-k32 --examples-per-bin 3 --device cuda --json",
    )

    config: AblationConfig

    def run(self) -> None:
        from mxd.trainer.analysis.ablation import build_ablations

        run, language_model = self.loaded()
        with self.opened() as database, task(f"Measuring {run.name}", "examples") as callbacks:
            result = build_ablations(run, self.config, language_model, database, callbacks=callbacks)
        self.report_measured(
            asdict(result),
            f"{result.run}: {result.experts:,} experts on {result.examples:,} examples. Medians: ablating changes "
            f"the loss by {result.loss_increase:+.4f} nats; amplifying changes the next-token distribution by "
            f"{result.kl_amplified:.4f} nats, a random expert of similar density by {result.kl_random_expert:.4f}, a "
            f"random direction by {result.kl_random_direction:.4f}.",
            [run],
        )


RECURRENCE_COLUMNS: tuple[tuple[str, Callable[[RunRecurrence], str]], ...] = (
    ("other run", lambda it: it.run),
    ("found again", lambda it: f"{it.found_again.value:.1%}"),
    ("95 %", lambda it: _interval(it.found_again)),
    ("by chance", lambda it: f"{it.chance:.1%}"),
    ("firing cosine", lambda it: f"{it.firing_cosine:.3f}"),
    ("by chance", lambda it: f"{it.chance_firing_cosine:.3f}"),
    ("writing cosine", lambda it: f"{it.writing_cosine:.3f}"),
    ("by chance", lambda it: f"{it.chance_writing_cosine:.3f}"),
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

    def run(self) -> None:
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


def _recurrence_table(result: Recurrence) -> str:
    head = (
        f"{result.run}: {len(result.experts):,} of {result.num_experts:,} experts measured, those with at least "
        f"{result.min_tokens} active of {result.tokens:,} tokens"
    )
    everywhere = (
        f"Found again in all of {len(result.runs)} other runs: {result.found_in_all.value:.1%} "
        f"({_interval(result.found_in_all)})"
    )
    return "\n".join([head, *table(result.runs, RECURRENCE_COLUMNS), everywhere])


def _interval(interval: Interval, form: str = ".1%") -> str:
    return f"{interval.low:{form}} to {interval.high:{form}}"


CONTRAST_HEADER = ("expert", "density A", "density B", "ratio", "95 %", "q", "example")
SHOWN_BEFORE, SHOWN_AFTER = 8, 6
"""Tokens of an example in the table around its peak."""


class ContrastCommand(RunCommand):
    """Find the experts that are active more often in text A than in text B, or less often.

    The ratio of activation densities has a 95 % interval over documents, and q-values correct for the number of
    experts. Random assignments of the documents show how many experts are found by chance.
    """

    examples: ClassVar = (
        "mxd contrast gpt2-l8-k32 --a stories.jsonl --b code.jsonl",
        "mxd contrast gpt2-l8-k32 --a labelled.jsonl --kind-a letter --kind-b news",
        "mxd contrast gpt2-l8-k32 --a before.jsonl --b after.jsonl --tokens 20k --json",
    )

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

    def run(self) -> None:
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
    lines = [head, found, *result.warnings, *([f"Control, {result.control}"] if result.control else [])]
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


PROBE_HEADER = ("class", "expert", "F1", "95 %", "bal. acc.", "ROC-AUC", "F1 of 5", "F1 neuron", "F1 random gate")


class ProbeCommand(ModelCommand):
    """Test single experts as classifiers of labelled texts: selected on validation texts, scored once on test texts.

    MLP neurons and a random gate of the same size are tested the same way as baselines.
    """

    examples: ClassVar = (
        "mxd probe gpt2-l8-k32 --labels reviews.csv",
        "mxd probe gpt2-l8-k32 gpt2-l8-k64 --labels news.jsonl --label-column topic",
        "mxd probe gpt2-l8-k32 --labels code.jsonl --level token --json",
    )

    names: Positional[list[str]]
    """Names or folders of the runs."""
    config: ProbeConfig

    def run(self) -> None:
        from mxd.trainer.evaluation.probing import probe
        from mxd.trainer.storage.run_records import register_run

        runs = self.load_runs(self.names)
        results: list[dict[str, Any]] = []
        loaded: dict[str, LanguageModel] = {}
        with self.opened() as database:
            for run in runs:
                register_run(run, database)
                source = run.language_model_source
                loaded[source] = loaded.get(source) or self.load_language_model(source)
                with task(f"Probing {run.name}", "texts") as callbacks:
                    results.append(probe(run, self.config, loaded[source], database, callbacks))
        document: Any = results[0] if len(results) == 1 else results
        texts = [TextConfig(dataset=self.config.labels, column=self.config.text_column)]
        self.report_measured(document, "\n\n".join(_probe_table(result) for result in results), runs, texts)


def _probe_table(result: dict[str, Any]) -> str:
    kinds = result["kinds"]
    rows = []
    for name, scores in result["classes"].items():
        one = scores["top1"]
        baselines = [kinds[kind]["classes"][name]["f1"] for kind in ("neurons", "random-gate")]
        rows.append(
            (
                name,
                str(scores["expert"]),
                f"{one['f1']:.3f}",
                f"{one['f1_low']:.3f} to {one['f1_high']:.3f}",
                *("" if value is None else f"{value:.3f}" for value in (one["balanced_accuracy"], one["roc_auc"])),
                f"{scores['top5']['f1']:.3f}",
                *(f"{baseline:.3f}" for baseline in baselines),
            )
        )
    return "\n".join([f"{result['run']}, {result['examples']:,} examples", *columns(PROBE_HEADER, rows)])


class BenchmarkCommand(ModelCommand):
    """Run the public benchmark sae-probes: sparse probes on 113 binary data sets.

    The runs are compared with the MLP's neurons and a random gate, on the same texts. The first run is compared with
    each of the others. The Evaluate page of the dashboard shows the results. They are also written in SAEBench's
    format. Install sae-probes first:
    pip install --no-deps sae-probes==0.4.2
    """

    examples: ClassVar = (
        "mxd benchmark gpt2-l8 gpt2-l8-transcoder gpt2-l8-skip",
        "mxd benchmark gpt2-l8 gpt2-l8-transcoder --texts 300 --tokens 64",
        "mxd benchmark gpt2-l8 --datasets 105_click_bait --datasets 96_spam_is --out clicks --json",
    )

    names: Positional[list[str]]
    """Names or folders of the runs, all of one language model."""
    config: BenchmarkConfig
    out: Path | None = None
    """Folder of the results; the same folder continues an interrupted benchmark (default: DATA/benchmark)."""

    def run(self) -> None:
        import mxd
        from mxd.trainer.evaluation.benchmark import SaeProbes, run_benchmark, write_saebench
        from mxd.trainer.storage.run_sets import common_language_model

        runs = self.load_runs(self.names)
        source = common_language_model(runs)
        SaeProbes().dataset_names(self.config.datasets)  # before the language model is loaded
        folder = self.out or self.settings().data / BENCHMARK_FOLDER
        language_model = self.load_language_model(source)
        for run in runs:
            run.layer.to(language_model.device_of(run.config.layer))
        with task("Benchmark", "data sets") as callbacks:
            result = run_benchmark(runs, self.config, language_model, folder, callbacks)
        write_saebench(runs, self.config, result, folder, f"mxd-explorer {mxd.__version__}")
        self.report_measured(asdict(result), f"{_benchmark_tables(result)}\n\nWritten to {folder}.", runs)


def _benchmark_tables(result: Benchmark) -> str:
    from mxd.backend.queries.probes import number_range

    seeds, tokens = result.settings.seeds, result.settings.tokens
    head = (
        f"{len(result.datasets):,} data sets; {number_range(result.training_texts)} training and "
        f"{number_range(result.test_texts)} test texts each; {len(seeds)} seeds; last token of at most {tokens:,}"
    )
    scores = [
        (score.subject, str(score.units), f"{score.mean.value:.3f}", _interval(score.mean, ".3f"))
        for score in result.scores
        if score.metric == "auc"
    ]
    first = result.scores[0].subject
    differences = [
        (
            f"{first} − {each.subject}",
            str(each.units),
            f"{each.mean.value:+.3f}",
            _interval(each.mean, "+.3f"),
            f"{each.better} of {len(result.datasets)}",
        )
        for each in result.differences
        if each.metric == "auc"
    ]
    return "\n".join(
        [
            head,
            "",
            *columns(("subject", "units", "ROC-AUC", "95 % over data sets"), scores),
            "",
            *columns(("difference", "units", "ROC-AUC", "95 % over data sets", "higher on"), differences),
        ]
    )
