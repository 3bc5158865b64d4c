"""Names of all commands. No command is imported here, so that ``mxd --help`` is fast."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from mxd.trainer.errors import UserError

PURPOSE = "Train mixtures of decoders (MxDs) on the MLPs of language models, and explore, steer and evaluate them."


class Entry(NamedTuple):
    """A command of ``mxd``."""

    module: str
    """Module in ``mxd.backend.cli.commands``, in which ``mxd lab train`` is the class LabTrainCommand."""
    summary: str
    """Line in ``mxd --help``: a verb phrase without a full stop."""


SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "Start": {
        "demo": Entry("serve", "serve the bundled demo in the browser"),
        "serve": Entry("serve", "serve the dashboard and the HTTP API for your runs or one .mxd file"),
        "mcp": Entry("serve", "serve tools for agents over the Model Context Protocol"),
        "doctor": Entry("database", "check versions, device, disk, database, runs and port"),
    },
    "Train": {
        "train": Entry("train", "train an MxD on one MLP, or a sweep over several settings"),
        "finetune": Entry("train", "fine-tune MxDs of several layers jointly, end to end"),
        "import": Entry("share", "import a layer of another library, or features of Neuronpedia"),
        "lab train": Entry("lab", "train with experimental methods and penalties"),
        "lab protect": Entry("lab", "fine-tune runs so the model is uncertain on chosen passages"),
    },
    "Explore": {
        "runs": Entry("index", "list trained runs"),
        "index": Entry("index", "collect statistics and top examples of every expert"),
        "label": Entry("index", "label experts by a heuristic or a language model"),
        "experts": Entry("index", "list and search the experts of a run, or show one"),
        "route": Entry("prompt", "show which experts fire on each token of a text"),
        "steer": Entry("prompt", "continue a prompt with and without edits to experts"),
        "find": Entry("prompt", "find the experts that make the model say something"),
        "circuit": Entry("prompt", "trace which experts produce a prediction, and check it by ablation"),
    },
    "Measure": {
        "evaluate": Entry("evaluate", "measure loss, faithfulness and expert health of runs"),
        "ablate": Entry("evaluate", "measure what ablating and amplifying each expert does"),
        "evaluate-steering": Entry("evaluate", "evaluate steering against random baselines"),
        "recurrence": Entry("evaluate", "measure which experts other seeds find again"),
        "contrast": Entry("evaluate", "find the experts that are more active in one of two texts"),
        "probe": Entry("evaluate", "run single-expert probes on labelled texts"),
        "benchmark": Entry("evaluate", "run the sparse probes of sae-probes, a public benchmark"),
        "verify": Entry("verify", "run the command of a recorded result again, and compare"),
        "report": Entry("share", "write all measurements to one HTML file"),
    },
    "Share and maintain": {
        "export": Entry("share", "export a run, its experts, its layer or steering vectors"),
        "push": Entry("share", "upload a run to the Hugging Face Hub"),
        "pull": Entry("share", "download a run from the Hugging Face Hub, or copy it from a folder"),
        "remove": Entry("database", "delete a run and its index"),
        "database": Entry("database", "check, rescue, compact or upgrade the database"),
        "token": Entry("database", "manage access tokens for a server exposed on the network"),
    },
}
"""Heading in ``mxd --help`` -> command -> where it is implemented."""
GROUPS: Mapping[str, str] = {"lab": "run experimental commands"}
"""First words of the commands that have two."""
COMMANDS: Mapping[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
"""Command -> where it is implemented, in the order of ``mxd --help``."""
GLOBAL_FLAGS = ("--data", "--database", "--config")
"""Flags with a value that may also be given before the command, as ``--json`` may."""


def overview(group: str = "") -> str:
    """Return the help of ``mxd``, or of one command group: all commands with their summaries."""
    if group:
        usage, purpose = f"mxd {group} COMMAND [options]", GROUPS[group]
        shown: dict[str, dict[str, str]] = {"commands": _below(group)}
    else:
        usage, purpose = "mxd COMMAND [options]", PURPOSE
        shown = {title: {} for title in SECTIONS}
        for title, section in SECTIONS.items():
            for name, entry in section.items():
                first, _, second = name.partition(" ")  # a command group has a single line
                shown[title][first] = GROUPS[first] if second else entry.summary
    lines = [f"usage: {usage}", "", purpose]
    for title, summaries in shown.items():
        lines += ["", f"{title}:", *(f"  {name:<18} {summary}" for name, summary in summaries.items())]
    more = f"Run 'mxd {f'{group} ' if group else ''}COMMAND --help' for the options of a command."
    others = (
        "Run 'mxd --version' for the versions in use.",
        "Run 'mxd --completion SHELL' for a script that completes commands in bash, zsh or fish.",
    )
    return "\n".join([*lines, "", more, *(() if group else others)])


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Split a command line into the command and its options. Global options before the command are moved after it."""
    rest, options, name = list(words), [], ""
    while rest:
        word = rest.pop(0)
        flag, assigned, _ = word.partition("=")
        if word == "--json" or flag in GLOBAL_FLAGS:
            options += [word, *([rest.pop(0)] if word in GLOBAL_FLAGS and rest and not assigned else [])]
            continue
        name = f"{name} {word}".lstrip()
        if name not in GROUPS:
            break
    if name in COMMANDS:
        return name, [*options, *rest]
    group = next((group for group in GROUPS if name == group or name.startswith(f"{group} ")), "")
    mxd = f"mxd {group}".rstrip()
    if name in ("", group):
        raise UserError(f"No command given. Run '{mxd} --help' for a list.")
    shown = " ".join(name.removeprefix(group).split())[:80]
    near = get_close_matches(shown, _below(group) if group else [*COMMANDS, *GROUPS], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise UserError(f"Unknown command '{shown}'.{hint} Run '{mxd} --help' for a list.")


def _below(group: str) -> dict[str, str]:
    return {
        name.removeprefix(f"{group} "): command.summary
        for name, command in COMMANDS.items()
        if name.startswith(f"{group} ")
    }
