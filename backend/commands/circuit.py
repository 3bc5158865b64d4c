"""``mxd circuit``: from which tokens and experts a next token comes, through one layer or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from backend.commands.console import progress
from backend.schemas import CircuitAgreement, CircuitGraph
from trainer.circuits.config import CircuitConfig, Errors
from trainer.errors import UserError

if TYPE_CHECKING:
    from trainer.circuits.agreement import Agreement
    from trainer.circuits.effects import Effect
    from trainer.circuits.graph import Circuit
    from trainer.language_model import LanguageModel
    from trainer.run import Run

SHOWN = 12
"""Experts in words; --json and --output have all."""


class CircuitCommand(Command):
    """Trace a prompt's next token back through experts: which of them add to its logit, and what made them active.

    Attention patterns, normalisation scales and the choice of experts are held as they are on this prompt; MLPs without
    a run are held whole.
    """

    names: CliPositionalArg[list[str]]
    """Names of runs of different layers of one language model, or their folders."""
    prompt: str
    """The text."""
    target: str | None = None
    """The next token that is explained, with its leading space, or its id; by default the most probable one."""
    position: Annotated[int, Field(ge=0)] | None = None
    """The token behind which it is expected, 0 being the start token; by default the last one."""
    errors: Errors = "kept"
    """kept: what each layer misses of its MLP is added. dropped: the layers answer alone."""
    nodes: Annotated[int, Field(ge=2, le=300)] = 40
    """Nodes that are kept at most."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Of all influence that the kept nodes hold, where as many are allowed."""
    followed: Annotated[int, Field(ge=1, le=2048)] = 128
    """Experts whose own causes are looked for, the most influential first."""
    check: bool = False
    """Also switch every kept expert off in the language model, to hold the graph against it."""
    output: Path | None = None
    """A .json or .html file for the whole graph."""
    device: str = "auto"
    """Where the language model runs: auto, cpu, cuda, or spread: over all GPUs, main memory and disk."""

    def run(self) -> int:
        """Trace, and say what was found."""
        from trainer.circuits.tracing import trace
        from trainer.language_model import LanguageModel

        _refuse_other_files(self.output)
        runs = self._runs()
        language_model = LanguageModel.load(runs[0].language_model_source, self.device)
        settings = {name: getattr(self, name) for name in CircuitConfig.model_fields if name in type(self).model_fields}
        config = CircuitConfig(**{**settings, "target": _token_id(language_model, self.target)})
        with progress("Following", "experts") as shown:
            circuit = trace(language_model, runs, config, shown)
        found = self._checked(language_model, runs, config, circuit)
        result = as_json(circuit, found)
        if self.output is not None:
            _write(self.output, circuit, result)
        self.report(result, _in_words(circuit, found, self.output))
        return 0

    def _runs(self) -> list[Run]:
        """Raises: UserError: they belong to different language models."""
        from trainer.run import Run

        runs = [Run.load(name, self.settings().data) for name in self.names]
        for run in runs:
            if run.language_model_source != runs[0].language_model_source:
                raise UserError(
                    f"{run.name} belongs to another language model than {runs[0].name}; choose runs of the same one."
                )
        return runs

    def _checked(
        self, language_model: LanguageModel, runs: Sequence[Run], config: CircuitConfig, circuit: Circuit
    ) -> tuple[Effect, ...]:
        if not self.check:
            return ()
        from trainer.circuits.agreement import check

        with progress("Switching off", "experts") as shown:
            return check(language_model, runs, config, circuit, shown)


def as_json(circuit: Circuit, effects: Sequence[Effect]) -> dict[str, Any]:
    """The graph as it travels; with effects, each beside its expert, and how well they agree."""
    result = CircuitGraph.model_validate(circuit, from_attributes=True).model_dump()
    if effects:
        from trainer.circuits.agreement import agreement

        found = agreement(effects)
        result["checked"] = [
            {**switch._asdict(), **effect._asdict()} for switch, effect in zip(circuit.experts, effects, strict=True)
        ]
        result["agreement"] = {name: getattr(found, name) for name in CircuitAgreement.model_fields}
    return result


def _refuse_other_files(path: Path | None) -> None:
    if path is not None and path.suffix not in (".json", ".html"):
        raise UserError(f"{path} is neither .json nor .html; name a file that ends in one of them.")


def _token_id(language_model: LanguageModel, word: str | None) -> int | None:
    """The id of a token by its text or number.

    Raises:
        UserError: the text is several tokens, or none.
    """
    if word is None or (word.isascii() and word.isdigit()):
        return None if word is None else int(word)
    ids: list[int] = language_model.tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(
            f"The target {word!r} is {len(ids)} tokens; give one, such as ' the' with its leading space, or its id."
        )
    return ids[0]


def _write(path: Path, circuit: Circuit, result: dict[str, Any]) -> None:
    from backend.circuit_page import circuit_page
    from trainer.files import disk_errors, write_whole

    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        write_whole(path, circuit_page(circuit))
    else:
        from backend.answers import json_of

        write_whole(path, json_of(result).decode() + "\n")


def _in_words(circuit: Circuit, effects: Sequence[Effect], output: Path | None) -> str:
    measured = dict(zip(circuit.experts, effects, strict=True)) if effects else {}
    made = ", ".join(f"{kind} {value:+.2f}" for kind, value in circuit.direct.items())
    lines = [
        f"{circuit.target.text!r} comes next with {circuit.target.probability:.1%}; its logit is "
        f"{circuit.target.logit:.2f} above the mean: {made}.",
        f"{len(circuit.nodes) - 1} of {circuit.num_nodes:,} nodes hold {circuit.kept_influence:.0%} of the influence, "
        f"{len(circuit.edges)} edges {circuit.kept_edges:.0%} of that between them.",
    ]
    experts = [node for node in circuit.nodes if node.kind == "expert"]
    for node, switch in list(zip(experts, circuit.experts, strict=True))[:SHOWN]:
        found = f", measured {measured[switch].measured:+.3f}" if switch in measured else ""
        lines.append(
            f"layer {node.layer} expert {node.expert} on {circuit.tokens[node.position].text!r} "
            f"(token {node.position}): influence {node.influence:.1%}, off: predicted {-node.effect:+.3f}{found}"
        )
    if effects:
        from trainer.circuits.agreement import agreement

        lines.append(_agreement_in_words(agreement(effects)))
    return "\n".join([*lines, *([f"Written to {output}."] if output is not None else [])])


def _agreement_in_words(found: Agreement) -> str:
    return (
        f"Of {found.experts} experts, each switched off alone: correlation of predicted and measured "
        f"{found.correlation:.2f}, same sign {found.same_sign:.0%}."
    )
