"""``mxd route``, ``steer``, ``find`` and ``circuit``: experts on a prompt, texts with edits to them, and circuits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional, RunCommand
from mxd.backend.cli.console import progress, table, task, write_output
from mxd.backend.cli.parser import nest, validate
from mxd.trainer.analysis.results import EditPrice
from mxd.trainer.config.analysis import (
    CircuitConfig,
    ContinuationTarget,
    DifferenceTarget,
    ExpertTarget,
    FindConfig,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.config.base import Size
from mxd.trainer.config.steering import EDIT_FORMATS, Edit, SteeringConfig
from mxd.trainer.config.training import DtypeChoice
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.results import SteeredGeneration, SteeringStep, TokenEvent
from mxd.trainer.utils.display import unknown_expert

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
    from mxd.trainer.analysis.results import EditEffect, EditEffects, FoundExperts
    from mxd.trainer.inference.units import Units
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run
    from mxd.trainer.utils.distributed import ProcessGroup


class RouteCommand(RunCommand):
    """Show which experts fire on each token of a text, and how much the layer changes the next-token distribution."""

    examples: ClassVar = (
        "mxd route gpt2-l8-k32 'The quick brown fox'",
        "mxd route gpt2-l8-k32 'The quick brown fox' --top 10",
        "mxd route gpt2-l8-k32 'The quick brown fox' --k 8 --json",
    )

    text: Positional[str]
    """Text to route."""
    top: Annotated[int, Field(ge=1)] = 5
    """Experts shown per token. --json always lists all."""
    k: Size | None = None
    """Active experts per token, the strongest first (default: the run's K)."""

    def run(self) -> None:
        from mxd.trainer.inference.routing import predict, route_together, text_ids

        run, language_model = self.loaded()
        ids = text_ids(language_model, [run], self.text)
        (routing,) = route_together(language_model, [run], ids, self.k)
        predictions = predict(language_model, run, ids, self.k)
        lines = []
        for token, prediction in zip(routing.tokens, predictions.tokens, strict=True):
            shown = "  ".join(f"{expert.expert}:{expert.activation:.3f}" for expert in token.experts[: self.top])
            more = len(token.experts) - self.top
            shown += f"  and {more} more" if more > 0 else ""
            lines.append(f"{token.text!r:<16} KL {prediction.kl:.3f}  {shown}")
        result = {"run": run.name, "tokens": routing.tokens, "predictions": predictions.tokens}
        self.report(result, "\n".join(lines))


class SteerCommand(RunCommand):
    """Continue a prompt twice: with the original model (baseline) and with edits to its experts (steered).

    Both texts use the same random numbers, so all differences come from the edits. 'mxd experts RUN' lists expert ids.
    """

    examples: ClassVar = (
        "mxd steer gpt2-l8-k32 'Once upon a time' --edit 12:add:4",
        "mxd steer gpt2-l8-k32 'Once upon a time' --edit 12:add:4 --edit 40:ablate --temperature 0 --price",
        "mxd steer gpt2-l8-k32 'Once upon a time' --edit gpt2-l9-k32/7:scale:3 --max-tokens 100 --json",
    )

    prompt: Positional[str]
    """Text to continue."""
    edit: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """EXPERT:scale:FACTOR, EXPERT:add:UNITS, EXPERT:set:UNITS or EXPERT:ablate. One unit: the expert's 99th percentile.
    Write RUN/EXPERT:… for a run of another layer. Repeat the flag for several edits. Conditions follow the edit:
    @when:EXPERT>UNITS, @when:EXPERT<=median, @prompt, @generated, @first:N, @ramp:N, @fade:N, @until:TEXT."""
    positions: str | None = None
    """Prompt tokens that the edits apply to, whatever the scope: indices such as 1,4,5 (0 is the start token), or
    none."""
    price: bool = False
    """Also measure what the edits cost on unrelated text and in a 200-item test of facts, arithmetic and grammar, next
    to the same edits of random experts. Takes half a minute on two cores."""
    flags: Annotated[dict[str, Any], FlagsOf(SteeringConfig, without=frozenset({"prompt", "edits", "positions"}))]

    def run(self) -> None:
        from mxd.trainer.analysis.edit_price import check_priced, edit_price
        from mxd.trainer.inference.steering import steer

        given = {
            "prompt": self.prompt,
            "edits": tuple(parse_edit(word) for word in self.edit),
            "positions": None if self.positions is None else parse_positions(self.positions),
        }
        config = validate(SteeringConfig, {**nest(SteeringConfig, self.flags), **given}, type(self), "mxd steer")
        if self.price:
            check_priced(config.edits)
        (run,) = self.load_runs([self.name])
        others = dict.fromkeys(name for edit in config.edits for name in edit.runs)
        runs = [run, *self.load_runs(name for name in others if name != run.name)]
        for each in runs:
            count = each.layer_config.num_experts
            for name, expert in config.experts(run.name):
                if name == each.name and expert >= count:
                    raise NotFoundError(unknown_expert(expert, name, count))
        config, units = self._from_index(config, runs)
        language_model = self.load_language_model(run.language_model_source)

        def shown() -> Iterator[SteeringStep]:
            with progress("Generating") as show:
                for step in steer(language_model, runs, config, units):
                    if isinstance(step, TokenEvent):
                        show(step.position + 1, config.sampling.max_tokens, "")
                    yield step

        result = SteeredGeneration.collect(run.name, self.prompt, shown())
        if config.edits and not result.changed_tokens:
            print(
                "mxd: the edits changed no token. Try a larger strength, another expert or --mode replace.",
                file=sys.stderr,
            )
        if not self.price:
            self.report(result, _format_steered(result))
            return
        with task("Measuring the price", "texts") as callbacks:
            price = edit_price(language_model, runs, config.edits, every_unit(self, runs), callbacks)
        self.report({**asdict(result), "price": asdict(price)}, f"{_format_steered(result)}\n{_format_price(price)}")

    def _from_index(self, config: SteeringConfig, runs: Sequence[Run]) -> tuple[SteeringConfig, Units]:
        """Return the request with medians in gate tests as levels in units, and the units of its experts."""
        from mxd.trainer.inference.steering import units_without_index
        from mxd.trainer.inference.units import edit_units, with_medians

        try:
            with self.reading_existing() as session:
                named = {run.name: run for run in runs}
                units = edit_units(config, runs[0].name, lambda name: named[name].units, session)
                return with_medians(session, config, runs[0].name), units
        except NotFoundError:
            return config, units_without_index(runs, config)


def every_unit(command: ModelCommand, runs: Sequence[Run]) -> Units:
    """Return the units of all experts, from the database if there is one."""
    from mxd.trainer.inference.units import all_units

    with suppress(NotFoundError), command.reading_existing() as session:
        return all_units(runs, session)
    return all_units(runs)


def parse_edit(word: str) -> Edit:
    """Return an edit such as ``12:scale:3``, ``other-run/7:add:2`` or ``40:ablate@when:12>median``."""
    try:
        return Edit.model_validate(word)
    except ValidationError as error:
        problem = error.errors()[0]
        known = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
        known = known.removeprefix(f"Invalid edit: '{word}'. ")
        raise UserError(f"Invalid --edit: '{word}'. {known or f'Write {EDIT_FORMATS}.'}") from error


def parse_positions(word: str) -> tuple[int, ...]:
    """Return positions such as ``1,4,5``, or no position for ``none``. Raises UserError if the word is neither."""
    try:
        return () if word == "none" else tuple(int(part) for part in word.split(","))
    except ValueError as error:
        raise UserError(f"Invalid --positions: '{word}'. Write whole numbers such as 1,4,5, or none.") from error


def _format_steered(result: SteeredGeneration) -> str:
    variants = {"baseline": result.baseline, "steered": result.steered}
    lines = [f"{name}: {result.prompt}{each.text}" for name, texts in variants.items() for each in texts]
    total = max(sum(len(each.tokens) for each in texts) for texts in variants.values())
    change = f"{result.changed_tokens} of {total} tokens changed; mean KL divergence on the steered text"
    return "\n".join([*lines, f"{change} {result.kl:.4f} nats per token"])


def _format_price(price: EditPrice) -> str:
    changes = (("KL divergence", "kl", "kl_error", ".4f"), ("loss", "loss_increase", "loss_error", "+.4f"))
    on_text = " and ".join(
        f"{what} {getattr(price.edits, name):{form}} ± {2 * getattr(price.edits, error):.4f} "
        f"(random experts {getattr(price.random, name):{form}})"
        for what, name, error, form in changes
    )
    return f"{price.verdict} {price.figures}.\nprice on unrelated text: {on_text} nats per token\n{price.ability_parts}"


class FindCommand(ModelCommand):
    """Find the experts that make wanted text more probable, over all layers at once.

    One backward pass predicts what one unit of every expert would do, whether it is active or not. The best experts are
    measured, then measured on stored texts in which the wanted one follows, which the search does not use. The price is
    the KL divergence on unrelated text. Random experts at the same strengths are the baseline.
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
        dict[str, Any],
        FlagsOf(FindConfig, without=frozenset({"prompts", "wanted", "unwanted", "held_out", "unrelated"})),
    ]

    def run(self) -> None:
        from mxd.trainer.analysis.effect_search import find, measure
        from mxd.trainer.storage.run_sets import check_compatible_runs

        given = {"prompts": self.prompt, "wanted": self.wanted, "unwanted": self.unwanted}
        config = validate(FindConfig, {**nest(FindConfig, self.flags), **given}, type(self), "mxd find")
        runs = self.load_runs(self.names)
        check_compatible_runs(runs)
        units = every_unit(self, runs)
        language_model = self.load_language_model(runs[0].language_model_source)
        with task("Searching", "steps") as callbacks:
            found = find(language_model, runs, config, units, callbacks)
            config = config.model_copy(update={"held_out": self._held_out(config, runs[0])})
            measured = measure(language_model, runs, config, [(each.edit,) for each in found.experts], units, callbacks)
        computed = {name: getattr(measured, name) for name in ("answer", "comparison", "best_first")}
        result = {**asdict(found), **asdict(measured), **computed}
        self.report_measured(result, self._format(config, runs, found, measured), runs)

    def _held_out(self, config: FindConfig, run: Run) -> tuple[str, ...]:
        from mxd.backend.queries.examples import texts_before
        from mxd.backend.queries.runs import find_run

        with suppress(NotFoundError), self.reading_existing() as session:
            return texts_before(session, find_run(session, run.name), config.wanted or config.unwanted, run.tokenizer)
        return ()

    def _labels(self, config: FindConfig, runs: Sequence[Run], edits: Sequence[Edit]) -> dict[Edit, str]:
        """Return the labels of the edited experts that are in the database, if there is one."""
        from mxd.backend.export.snapshots import names_in
        from mxd.backend.inference.run_loader import Vocabulary
        from mxd.backend.queries.experts import naming
        from mxd.backend.queries.runs import find_run

        labels = dict.fromkeys(edits, "no label")
        for run in runs:
            own = {edit.expert: edit for edit in edits if edit.run == run.name}
            with suppress(NotFoundError), self.reading_existing() as session:
                names = names_in(session, {run.name: own})
                marked = naming(session, find_run(session, run.name), own, config.wanted, Vocabulary(run.tokenizer))
                labels |= {own[expert]: label for (_, expert), label in names.items()}
                labels |= {own[expert]: f"{labels[own[expert]]} (names it)" for expert in marked}
        return labels

    def _format(self, config: FindConfig, runs: Sequence[Run], found: FoundExperts, measured: EditEffects) -> str:
        from mxd.trainer.analysis.results import SEARCH_COLUMNS

        what = "of the wanted text" if config.wanted else "that no unwanted text follows"
        lines = [f"Probability {what}: {found.probability:.2%} without edits."]
        if not found.experts:
            return "\n".join([*lines, "No expert helps."])
        lines += [measured.answer, measured.comparison]
        labels = self._labels(config, runs, [each.edit for each in found.experts])
        best = [(found.experts[n].edit, measured.effects[n]) for n in measured.best_first]
        cells: dict[str, Callable[[tuple[Edit, EditEffect]], str]] = {
            "strength": lambda row: f"{row[0].strength:+}",
            "held_out": lambda row: "–" if row[1].held_out_change is None else f"{row[1].held_out_change:+.2f}",
            "rises": lambda row: f"{row[1].held_out_rises} of {len(measured.held_out)}" if measured.held_out else "–",
            "change": lambda row: f"{row[1].change:+.2f}",
            "alone": lambda row: f"{row[1].alone:+.2f}",
            "probability": lambda row: f"{row[1].probability:.2%}".removesuffix("%"),
            "price": lambda row: f"{row[1].price / row[1].random_price:.1f}",
        }
        is_contrast = bool(config.wanted and config.unwanted)
        shown = [column for column in SEARCH_COLUMNS if column.key != "alone" or is_contrast]
        titled = [(", ".join(filter(None, (each.title, each.unit))), cells[each.key]) for each in shown]
        experts = [("Expert", lambda row: f"{row[0].run}/{row[0].expert}"), ("Label", lambda row: labels[row[0]])]
        command = f"Run: mxd steer {runs[0].name} {quote(config.prompts[0])} --edit {quote(str(best[0][0]))}"
        return "\n".join([*lines, *table(best, [*experts, *titled], len(experts)), command])


class CircuitCommand(ModelCommand):
    """Trace a prediction back to experts: what would happen to it, and to each other, if one of them were ablated.

    Effects are predicted from one gradient of the unchanged model, and then measured by ablation.
    """

    examples: ClassVar = (
        "mxd circuit gpt2-l8-k32 --prompt 'The capital of France is'",
        "mxd circuit l6 l7 l8 --prompt 'The capital of France is' --target ' Paris' --against ' London'",
        "mxd circuit l6 l8 --prompt 'The capital of France is' --target-expert l8/31",
    )

    names: Positional[list[str]]
    """Names or folders of runs of different layers of one language model."""
    target: list[str] = Field(default_factory=list)
    """Next token to explain, with its leading space, or its id; repeatable, for the probability of any (default:
    the most probable one)."""
    against: str | None = None
    """Token whose logit is subtracted from that of --target."""
    continuation: str | None = None
    """Explain the log-probability of this continuation instead of a token."""
    target_expert: str | None = None
    """Explain the activation of this expert on the last token instead, given as RUN/NUMBER."""
    flags: Annotated[dict[str, Any], FlagsOf(CircuitConfig, without=frozenset({"target"}))]
    check: Literal["all", "none"] = "all"
    """Measured effects. all: ablate every shown expert alone, all of them together, and all others. none: predictions
    only. Default: all."""
    out: Path | None = None
    """Write the whole result to this .json file."""
    graph: Path | None = None
    """Add the graph to this folder in the attribution graph format of Neuronpedia and circuit-tracer, with labels and
    examples of its experts."""
    dtype: DtypeChoice = "auto"
    """Data type of the language model. auto: float32 if it fits the device, because bfloat16 changes the graph; else
    bfloat16."""
    model_id: str | None = None
    """Neuronpedia's id of the language model, for --graph (default: the folder of its feature files)."""

    def run(self) -> None:
        from mxd.trainer.analysis.circuits.checking import check
        from mxd.trainer.analysis.circuits.tracing import trace
        from mxd.trainer.storage.run_sets import check_compatible_runs

        if self.out is not None and self.out.suffix != ".json":
            raise UserError(f"Unsupported --out: '{self.out}'. Supported file type: .json.")
        values = nest(CircuitConfig, self.flags)
        validate(CircuitConfig, values, type(self), "mxd circuit")  # before anything large is loaded
        runs = self.load_runs(self.names)
        check_compatible_runs(runs)
        language_model = self.load_language_model(runs[0].language_model_source)
        config = CircuitConfig.model_validate({**values, "target": self._target(language_model)})
        with task("Tracing", "experts") as callbacks:
            circuit = trace(language_model, runs, config, callbacks)
        checked = None
        if self.check == "all":
            with task("Measuring", "passes") as callbacks:
                checked = check(language_model, runs, config, circuit, callbacks)
        result = as_json(circuit, checked)
        if self.out is not None:
            write_output(self.out, f"{to_json(result, inf_nan_mode='null').decode()}\n")
        if self.graph is not None:
            from mxd.backend.export.attribution_graph import export_circuit

            with self.reading() as session:
                export_circuit(session, runs, circuit, checked, self.graph, self.model_id)
        lines = [*summary(circuit, checked), *(f"Written to {it}." for it in (self.out, self.graph) if it)]
        self.report_measured(result, "\n".join(lines), runs)

    def load_language_model(self, source: str, group: ProcessGroup | None = None) -> LanguageModel:
        from mxd.trainer.language_model.loading import fits_in_float32

        if self.dtype == "auto" and fits_in_float32(source, self.device):
            return self.model_copy(update={"dtype": "float32"}).load_language_model(source, group)
        return super().load_language_model(source, group)

    def _target(self, language_model: LanguageModel) -> Target:
        """The target of the flags. Raises UserError if flags exclude each other, or a text is not one token."""
        kinds = [
            ("--target", self.target),
            ("--continuation", self.continuation),
            ("--target-expert", self.target_expert),
        ]
        given = [flag for flag, value in kinds if value]
        if len(given) > 1:
            raise UserError(f"{given[0]} and {given[1]} name two targets. Give one.")
        if self.against is not None and len(self.target) != 1:
            raise UserError("--against needs exactly one --target.")
        if self.continuation:
            return ContinuationTarget(text=self.continuation)
        if self.target_expert:
            run, slash, expert = self.target_expert.rpartition("/")
            if not slash or not (expert.isascii() and expert.isdigit()):
                raise UserError(f"Invalid --target-expert: '{self.target_expert}'. Give RUN/NUMBER, such as l8/31.")
            return ExpertTarget(run=run, expert=int(expert))
        ids = [_token_id(language_model, word) for word in self.target]
        if self.against is not None:
            return DifferenceTarget(token=ids[0], other=_token_id(language_model, self.against))
        if len(ids) > 1:
            return SetTarget(tokens=tuple(ids))
        return TokenTarget(token=ids[0] if ids else None)


def as_json(circuit: Circuit, check: CircuitCheck | None) -> dict[str, Any]:
    from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck

    result: dict[str, Any] = TypeAdapter(Circuit).dump_python(circuit, mode="json")
    if check is not None:
        result["check"] = TypeAdapter(CircuitCheck).dump_python(check, mode="json")
    return result


def summary(circuit: Circuit, check: CircuitCheck | None) -> list[str]:
    """The target, the verdict and all experts as lines."""
    unit = {"expert": "", "token": " logits", "difference": " logits"}.get(circuit.target.kind, " nats")
    lines = [
        f"Target: {circuit.label}, {circuit.value:.3f}{unit}.",
        f"{len(circuit.experts)} of {circuit.active:,} active experts are shown; they have {circuit.retained:.0%} of "
        "the absolute predicted effects.",
    ]
    if check is not None:
        verdict = check.verdict
        lines += [verdict.headline, verdict.sentence]
        lines += [f"{name}: {value}, {note}." for name, value, note in verdict.figures]
    measured: Sequence[float | None] = [None] * len(circuit.nodes) if check is None else check.measured
    for node, change in list(zip(circuit.nodes, measured, strict=True))[1:]:
        lines.append(
            f"layer {node.layer} expert {node.expert} on {circuit.tokens[node.position].text!r} (token "
            f"{node.position}), ablated: predicted {node.predicted:+.3f}"
            + ("" if change is None else f", measured {change:+.3f}")
            + (" (mean of three gradients)" if node.method == "path" else "")
        )
    return lines


def _token_id(language_model: LanguageModel, word: str) -> int:
    from mxd.trainer.language_model.tokenizer import single_token

    return int(word) if word.isascii() and word.isdigit() else single_token(language_model, word)
