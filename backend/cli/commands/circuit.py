"""``mxd circuit``: attribution graphs of predictions, through one layer or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import FlagsOf, ModelCommand, Positional
from mxd.backend.cli.console import task
from mxd.backend.cli.options import nest
from mxd.backend.cli.parser import validate
from mxd.backend.plots.attention_text import ExplainedEdge, attention_lines
from mxd.trainer.config import DtypeChoice
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.errors import UserError

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.graph import AblationEffect, Agreement, Circuit
    from mxd.trainer.language_model.model import LanguageModel
    from mxd.trainer.storage.run import Run
    from mxd.trainer.utils.distributed import ProcessGroup

MAX_EXPERTS_SHOWN = 12
"""Experts listed as text. --json and --out contain all."""


class CircuitCommand(ModelCommand):
    """Trace a prediction back through experts: which ones raise the token's logit, and what activated them.

    Attention patterns, normalisation scales and the selection of experts are frozen at their values on this prompt.
    MLPs without a run are frozen entirely.
    """

    examples: ClassVar = (
        "mxd circuit gpt2-l8-k32 --prompt 'The capital of France is'",
        "mxd circuit l6 l7 l8 --prompt 'The capital of France is' --target ' Paris' --out circuit.html",
        "mxd circuit gpt2-l8-k32 --prompt 'The capital of France is' --check --json",
    )

    names: Positional[list[str]]
    """Names or folders of runs of different layers of one language model."""
    target: str | None = None
    """Next token to explain, with its leading space, or its id (default: the most probable one)."""
    flags: Annotated[dict[str, Any], FlagsOf(CircuitConfig, without=frozenset({"target", "edge_share"}))] = Field(
        default_factory=dict
    )
    check: bool = False
    """Also ablate every expert of the graph in the language model, and compare with the graph's predictions."""
    attention: Annotated[int, Field(ge=0, le=100)] = 0
    """Also explain the attention of this many edges between tokens, most influential first: the heads that carried
    each edge, and the experts that made them look there. Default: 0."""
    out: Path | None = None
    """Write the whole graph to this .json or .html file."""
    graph: Path | None = None
    """Add the graph to this folder in the attribution graph format of Neuronpedia and circuit-tracer, with labels and
    examples of its experts."""
    dtype: DtypeChoice = "auto"
    """Data type of the language model. auto: float32 if it fits the device, because bfloat16 changes the graph; else
    bfloat16."""
    model_id: str | None = None
    """Neuronpedia's id of the language model, for --graph (default: the folder of its feature files)."""

    def run(self) -> int:
        """Trace, and print a summary."""
        from mxd.trainer.analysis.circuits.tracing import trace

        _check_output(self.out)
        values = nest(CircuitConfig, self.flags)
        validate(CircuitConfig, values, type(self), "mxd circuit")  # before anything large is loaded
        runs = self._runs()
        language_model = self.load_language_model(runs[0].language_model_source)
        config = CircuitConfig.model_validate({**values, "target": _token_id(language_model, self.target)})
        with task("Tracing", "experts") as callbacks:
            circuit = trace(language_model, runs, config, callbacks)
        effects = self._effects(language_model, runs, config, circuit)
        explained = self._explained(language_model, runs, config, circuit)
        result = as_json(circuit, effects, explained)
        if self.out is not None:
            _write(self.out, circuit, explained, result)
        if self.graph is not None:
            self._write_graph(self.graph, runs, circuit, effects)
        summary = _format_result(circuit, config, effects, self.out or self.graph)
        self.report(result, "\n".join([summary, *attention_lines(circuit, explained)]))
        return 0

    def load_language_model(self, source: str, group: ProcessGroup | None = None) -> LanguageModel:
        """Load a language model as ``--device`` and ``--dtype`` say."""
        from mxd.trainer.language_model.loading import fits_in_float32

        if self.dtype == "auto" and fits_in_float32(source, self.device):
            return self.model_copy(update={"dtype": "float32"}).load_language_model(source, group)
        return super().load_language_model(source, group)

    def _runs(self) -> list[Run]:
        """Load the runs.

        Raises:
            UserError: they belong to different language models.
        """
        from mxd.trainer.storage.run import Run

        runs = [Run.load(name, self.settings().data) for name in self.names]
        for run in runs:
            if run.language_model_source != runs[0].language_model_source:
                raise UserError(
                    f"Runs '{run.name}' and '{runs[0].name}' belong to different language models. "
                    "Choose runs of one language model."
                )
        return runs

    def _write_graph(
        self, folder: Path, runs: Sequence[Run], circuit: Circuit, effects: Sequence[AblationEffect]
    ) -> None:
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.export.graph_folder import export_circuit

        with opened(self.settings().database_url) as database, reading(database) as session:
            export_circuit(session, runs, circuit, effects, folder, self.model_id)

    def _effects(
        self, language_model: LanguageModel, runs: Sequence[Run], config: CircuitConfig, circuit: Circuit
    ) -> tuple[AblationEffect, ...]:
        if not self.check:
            return ()
        from mxd.trainer.analysis.circuits.agreement import ablate_each_expert

        with task("Ablating", "experts") as callbacks:
            return ablate_each_expert(language_model, runs, config, circuit, callbacks)

    def _explained(
        self, language_model: LanguageModel, runs: Sequence[Run], config: CircuitConfig, circuit: Circuit
    ) -> tuple[ExplainedEdge, ...]:
        from mxd.trainer.analysis.circuits.edge_attention import explain_circuit_edges

        edges = circuit.edges_between_tokens[: self.attention]
        if not edges:
            return ()
        with task("Explaining", "edges") as callbacks:
            explained = explain_circuit_edges(language_model, runs, config, circuit, edges, callbacks)
        return tuple(zip(edges, explained, strict=True))


def as_json(
    circuit: Circuit, effects: Sequence[AblationEffect], explained: Sequence[ExplainedEdge] = ()
) -> dict[str, Any]:
    """Return the graph as JSON. Measured effects are added with their experts, together with how well they agree.

    Explained edges are added under ``attention``, with the indices of their nodes.
    """
    result = asdict(circuit)
    if explained:
        result["attention"] = [
            {"source": edge.source, "target": edge.target, **asdict(attention)} for edge, attention in explained
        ]
    if effects:
        from mxd.trainer.analysis.circuits.agreement import agreement

        result["checked"] = [
            {**switch._asdict(), **asdict(effect)} for switch, effect in zip(circuit.experts, effects, strict=True)
        ]
        result["agreement"] = asdict(agreement(effects))
    return result


def _check_output(path: Path | None) -> None:
    if path is not None and path.suffix not in (".json", ".html"):
        raise UserError(f"Unsupported --out: '{path}'. Supported file types: .json, .html.")


def _token_id(language_model: LanguageModel, word: str | None) -> int | None:
    """Return the id of a token given by its text or id.

    Raises:
        UserError: the text is not exactly one token.
    """
    if word is None or (word.isascii() and word.isdigit()):
        return None if word is None else int(word)
    ids: list[int] = language_model.tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(
            f"Invalid --target: {word!r} is {len(ids)} tokens. Give one token, such as ' the' with its leading space, "
            "or its id."
        )
    return ids[0]


def _write(path: Path, circuit: Circuit, explained: Sequence[ExplainedEdge], result: dict[str, Any]) -> None:
    from mxd.backend.plots.circuit_page import circuit_page
    from mxd.trainer.utils.files import atomic_write, disk_errors

    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        atomic_write(path, circuit_page(circuit, explained))
    else:
        from mxd.backend.responses import to_json_bytes

        atomic_write(path, to_json_bytes(result).decode() + "\n")


def _format_result(
    circuit: Circuit, config: CircuitConfig, effects: Sequence[AblationEffect], output: Path | None
) -> str:
    measured = dict(zip(circuit.experts, effects, strict=True)) if effects else {}
    parts = ", ".join(f"{kind} {value:+.2f}" for kind, value in circuit.direct.items())
    lines = [
        f"{circuit.target.text!r} has probability {circuit.target.probability:.1%}; its logit is "
        f"{circuit.target.logit:.2f} above the mean: {parts}.",
        f"{len(circuit.nodes) - 1} of {circuit.num_nodes:,} nodes hold {circuit.retained_influence:.0%} of the "
        f"influence; {len(circuit.edges)} edges hold {circuit.retained_edge_influence:.0%} of that between them.",
    ]
    if circuit.retained_influence < config.share and len(circuit.nodes) > config.nodes:
        lines.append(f"This is less than the {config.share:.0%} of --share. Raise --nodes above {config.nodes}.")
    experts = [node for node in circuit.nodes if node.kind == "expert"]
    for node, switch in list(zip(experts, circuit.experts, strict=True))[:MAX_EXPERTS_SHOWN]:
        effect = f", measured {measured[switch].measured:+.3f}" if switch in measured else ""
        lines.append(
            f"layer {node.layer} expert {node.expert} on {circuit.tokens[node.position].text!r} "
            f"(token {node.position}): influence {node.influence:.1%}, ablated: predicted {-node.effect:+.3f}{effect}"
        )
    if effects:
        from mxd.trainer.analysis.circuits.agreement import agreement

        lines.append(_format_agreement(agreement(effects)))
    return "\n".join([*lines, *([f"Written to {output}."] if output is not None else [])])


def _format_agreement(agreement: Agreement) -> str:
    from mxd.trainer.analysis.circuits.agreement import MIN_CORRELATED

    text = f"{agreement.experts} experts ablated one at a time: predicted and measured effects have"
    if agreement.experts < MIN_CORRELATED:
        return f"{text} the same sign for {agreement.same_sign:.0%}; a correlation needs at least {MIN_CORRELATED}."
    correlation = "" if agreement.correlation is None else f" correlation {agreement.correlation:.2f} and"
    return f"{text}{correlation} the same sign for {agreement.same_sign:.0%}."
