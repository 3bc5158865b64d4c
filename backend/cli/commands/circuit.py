"""``mxd circuit``: the experts behind a prediction, through one layer or several, with their measured effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import task, write_output
from mxd.backend.cli.parser import nest, validate
from mxd.trainer.config import DtypeChoice
from mxd.trainer.config.analysis import (
    CircuitConfig,
    ContinuationTarget,
    DifferenceTarget,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
)
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.utils.distributed import ProcessGroup


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
    flags: Annotated[dict[str, Any], FlagsOf(CircuitConfig, without=frozenset({"target"}))] = Field(
        default_factory=dict
    )
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

    def run(self) -> int:
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
        return 0

    def load_language_model(self, source: str, group: ProcessGroup | None = None) -> LanguageModel:
        """Load a language model as ``--device`` and ``--dtype`` say."""
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
    """The circuit as JSON, and its check under ``check`` if it was made."""
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
        lines += verdict(circuit, check)
    measured: Sequence[float | None] = [None] * len(circuit.nodes) if check is None else check.measured
    for node, change in list(zip(circuit.nodes, measured, strict=True))[1:]:
        lines.append(
            f"layer {node.layer} expert {node.expert} on {circuit.tokens[node.position].text!r} (token "
            f"{node.position}), ablated: predicted {node.predicted:+.3f}"
            + ("" if change is None else f", measured {change:+.3f}")
            + (" (mean of three gradients)" if node.method == "path" else "")
        )
    return lines


def verdict(circuit: Circuit, check: CircuitCheck) -> list[str]:
    """Agreement and sufficiency as text."""
    experts, edges, left = check.experts, check.between, check.sufficiency
    whole = circuit.value - left.without_experts
    kept, control, random_mean, random_worst = (
        f"{(value - left.without_experts) / whole:.0%}" if whole else "-"
        for value in (left.mean, left.control, left.random_mean, left.random_worst)
    )
    lines = []
    if experts.correlation is not None and experts.same_sign is not None:
        lines.append(
            f"Predicted against measured: correlation {experts.correlation:.2f}, same sign {experts.same_sign:.0%}, "
            f"largest miss {experts.largest_miss:.3f}; all together {check.joint.measured:+.3f}, sum of predictions "
            f"{check.joint.predicted:+.3f}."
        )
    if edges.correlation is not None:
        lines.append(f"{edges.count} edges between experts: correlation {edges.correlation:.2f}.")
    lines += [
        f"Sufficiency: the shown experts alone keep {kept} of what all experts do, as many random ones {control}. With "
        f"all others at random strengths {random_mean} remain, in the worst of {left.draws} draws {random_worst}.",
        f"circuit-tracer's scores: replacement {check.scores.replacement:.2f}, completeness "
        f"{check.scores.completeness:.2f}.",
    ]
    return lines


def _token_id(language_model: LanguageModel, word: str) -> int:
    from mxd.trainer.language_model.tokenizer import single_token

    return int(word) if word.isascii() and word.isdigit() else single_token(language_model, word)
