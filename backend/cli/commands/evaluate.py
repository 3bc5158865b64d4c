"""``mxd evaluate``, ``mxd evaluate-steering`` and ``mxd ablate``: what runs and experts do to the language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional, Several
from mxd.backend.cli.commands.index import with_context_of
from mxd.backend.cli.console import columns, task
from mxd.trainer.config import AblationConfig, EvaluateConfig, Size, SteeringEvaluationConfig
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluation_metrics import HEADINGS, table_cells

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.trainer.evaluation.evaluate import Evaluator, Measurement
    from mxd.trainer.storage.run import Run

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

    def run(self) -> int:
        from mxd.trainer.storage.run_records import register_run

        runs = self.load_runs(self.names)
        if len(sources := {run.language_model_source for run in runs}) > 1:
            named = ", ".join(sorted(sources))
            raise UserError(f"The runs belong to several language models: {named}. Evaluate one model at a time.")
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
        return 0

    def _measure_on(self, text: str, runs: Sequence[Run], database: Engine) -> list[Result]:
        from dataclasses import replace

        from mxd.trainer.data.documents import fingerprint
        from mxd.trainer.evaluation.evaluate import (
            Evaluator,
            check_held_out,
            evaluate,
            evaluate_jointly,
            evaluate_layer_by_layer,
            is_training_text,
            layer_by_layer_subject,
            load_evaluation,
            sort_by_layer,
            subject_name,
            write_evaluation,
        )
        from mxd.trainer.storage.run_sets import UNRECORDED, weights_digest

        config = self._config_for(text, runs[0])
        if self.together or self.layer_by_layer:
            sort_by_layer(runs)  # reports incompatible runs before anything is measured
        if not self.seen_text:
            for run in runs:
                check_held_out(run.name, config.text, run.config.text)
        digest = fingerprint(config.text)
        opened: list[Evaluator] = []  # when the first run has no cached result

        def measure(members: Sequence[Run], subject: str, evaluation: Measure, k: int | None = None) -> Result:
            weights = weights_digest(members)
            chosen = config.model_copy(update={"k": k})
            cached = load_evaluation(database, subject, digest, chosen, weights)
            if cached is not None:
                return {"provenance": UNRECORDED, **cached}
            with task(f"Evaluating {subject}") as callbacks:
                if not opened:
                    language_model = self.load_language_model(runs[0].language_model_source)
                    opened.append(Evaluator.open(config, language_model, callbacks))
                measured = evaluation(replace(opened[0], config=chosen, callbacks=callbacks))
            return write_evaluation(database, measured, members[0].name, chosen, digest, weights)

        def alone(evaluator: Evaluator, run: Run) -> Measurement:
            return evaluate(evaluator, run, is_training_text(config.text, run.config.text))

        results = [
            measure([run], subject_name(run.name, k), partial(alone, run=run), k)
            for run in runs
            for k in (None if k == run.layer_config.k else k for k in self.k)  # None: the run's own K
        ]
        individual_losses = [result["loss_increase"]["value"] for result in results]
        if self.together:
            subject = " + ".join(run.name for run in runs)
            results.append(
                measure(runs, subject, partial(evaluate_jointly, runs=runs, individual_losses=individual_losses))
            )
        if self.layer_by_layer:
            added = partial(evaluate_layer_by_layer, runs=runs, individual_losses=individual_losses)
            results.append(measure(sort_by_layer(runs), layer_by_layer_subject(runs), added))
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


EVALUATE_STEERING_HEADER = ("", "strength", "KL", "loss", "self-similarity", "promoted")


class EvaluateSteeringCommand(ModelCommand):
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

    name: Positional[str]
    """Name or folder of the run."""
    config: SteeringEvaluationConfig

    def run(self) -> int:
        from mxd.trainer.evaluation.steering import evaluate_steering, median_results

        (run,) = self.load_runs([self.name])
        language_model = self.load_language_model(run.language_model_source)
        with self.opened() as database, task(f"Steering with {run.name}") as callbacks:
            results = evaluate_steering(run, self.config, language_model, database, callbacks=callbacks)
        rows = [
            (
                kind,
                f"{strength:g}",
                f"{median['kl']:.4f}",
                f"{median['loss']:.3f}",
                f"{median['self_similarity']:.3f}",
                f"{median['promoted_share']:.4f}",
            )
            for kind, strengths in median_results(results).items()
            for strength, median in strengths.items()
        ]
        document = {"run": run.name, "results": [asdict(result) for result in results]}
        self.report_measured(document, "\n".join(columns(EVALUATE_STEERING_HEADER, rows)), [run])
        return 0


class AblateCommand(ModelCommand):
    """Ablate and amplify experts on their own examples, and store the effects.

    Measures which tokens an expert promotes, the loss increase when it is ablated, and the KL divergence when it is
    amplified. Replaces earlier measurements of the same experts. The run must have been indexed.
    """

    examples: ClassVar = (
        "mxd ablate gpt2-l8-k32",
        "mxd ablate gpt2-l8-k32 --experts 46,609,4078",
        "mxd ablate gpt2-l8-k32 --examples-per-bin 3 --device cuda --json",
    )

    name: Positional[str]
    """Name or folder of the run."""
    config: AblationConfig

    def run(self) -> int:
        from mxd.trainer.analysis.ablation import build_ablations

        (run,) = self.load_runs([self.name])
        language_model = self.load_language_model(run.language_model_source)
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
        return 0
