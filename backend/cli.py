"""``mxd``: one program, a command each for fitting, indexing, routing, steering and serving."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliPositionalArg,
    CliSettingsSource,
    CliSubCommand,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    get_subcommand,
)

from backend.commands.base import Command, CommandGroup
from backend.commands.bench import BenchCommand
from backend.commands.bundle import OpenCommand, PackCommand
from backend.commands.console import Interrupted
from backend.commands.demo import DemoCommand
from backend.commands.doctor import DoctorCommand
from backend.commands.evaluate import EvaluateCommand
from backend.commands.evaluate_steering import EvaluateSteeringCommand
from backend.commands.explain import ExplainCommand
from backend.commands.export import ExportCommand
from backend.commands.importing import ImportCommand
from backend.commands.index import IndexCommand
from backend.commands.influence import InfluenceCommand
from backend.commands.label import LabelCommand
from backend.commands.probe import ProbeCommand
from backend.commands.remove import RemoveCommand
from backend.commands.report import ReportCommand
from backend.commands.route import RouteCommand
from backend.commands.runs import RunsCommand
from backend.commands.serve import ServeCommand
from backend.commands.share import PullCommand, PushCommand
from backend.commands.steer import SteerCommand
from backend.commands.store import StoreCommand
from backend.commands.token import TokenCommand
from backend.commands.train import TrainCommand
from trainer.errors import SilentError, UserError

BAD_INPUT = 2
INTERRUPTED = 130
NOBODY_READS = 141
"""As a shell sees a program that SIGPIPE ended."""
GROUPS = ("bench", "store", "token")


class CompletionCommand(Command):
    """Print a script that lets a shell complete commands, flags and their values.

    bash: mxd completion bash > ~/.local/share/bash-completion/completions/mxd. zsh: mxd completion zsh > a folder of
    $fpath, as _mxd. fish: mxd completion fish > ~/.config/fish/completions/mxd.fish.
    """

    shell: CliPositionalArg[Literal["bash", "zsh", "fish"]]
    """Which shell."""

    def run(self) -> int:
        """Print it."""
        import shtab

        parser = parser_of_everything()
        for action in _actions(parser):
            values = re.match(r"\{(.+)\}", str(action.metavar))
            if values:
                action.choices = values[1].split(",")
            elif action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        script = shtab.complete(parser, self.shell)
        self.report({"shell": self.shell, "script": script}, script)
        return 0


class Mxd(BaseSettings):
    """Fit mixtures of linear decoders (MxD) to the MLPs of language models, and explore their experts."""

    model_config = SettingsConfigDict(
        cli_prog_name="mxd",
        cli_kebab_case=True,
        cli_implicit_flags="toggle",
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
        use_attribute_docstrings=True,
    )

    demo: CliSubCommand[DemoCommand]
    """serve the shipped sample at once"""
    train: CliSubCommand[TrainCommand]
    """fit a layer, or go on fitting it"""
    import_: CliSubCommand[ImportCommand] = Field(alias="import")
    """a layer that another program fitted, as a run"""
    index: CliSubCommand[IndexCommand]
    """statistics and contexts of every expert into the store"""
    influence: CliSubCommand[InfluenceCommand]
    """what each expert does and how much it matters, into the store"""
    evaluate: CliSubCommand[EvaluateCommand]
    """what runs add to the loss, and whether their experts do anything"""
    evaluate_steering: CliSubCommand[EvaluateSteeringCommand]
    """what turning experts up does to texts, beside controls"""
    probe: CliSubCommand[ProbeCommand]
    """how well single experts tell labelled texts apart"""
    report: CliSubCommand[ReportCommand]
    """every figure of what was measured, in one HTML file"""
    label: CliSubCommand[LabelCommand]
    """name experts by what they fire on, and say how well each name fits"""
    explain: CliSubCommand[ExplainCommand]
    """ask a language model of your choice to name experts, and test each name"""
    route: CliSubCommand[RouteCommand]
    """which experts are active on each token of a text"""
    steer: CliSubCommand[SteerCommand]
    """continue a prompt as it is and with edits"""
    serve: CliSubCommand[ServeCommand]
    """the dashboard and the API"""
    runs: CliSubCommand[RunsCommand]
    """what has been fitted"""
    export: CliSubCommand[ExportCommand]
    """experts and contexts as JSON, CSV, Parquet or Neuronpedia's batches"""
    pack: CliSubCommand[PackCommand]
    """a run with all that is known of it in one file"""
    open: CliSubCommand[OpenCommand]
    """serve a file that mxd pack wrote"""
    push: CliSubCommand[PushCommand]
    """put a run on the hub, with a card"""
    pull: CliSubCommand[PullCommand]
    """fetch a run from the hub, or from a folder"""
    remove: CliSubCommand[RemoveCommand]
    """delete a run"""
    doctor: CliSubCommand[DoctorCommand]
    """is everything in order on this machine"""
    store: CliSubCommand[StoreCommand]
    """is the store whole; give back the room of what was deleted"""
    token: CliSubCommand[TokenCommand]
    """who may use a server that is bound beyond this machine"""
    bench: CliSubCommand[BenchCommand]
    """speed and memory"""
    completion: CliSubCommand[CompletionCommand]
    """a script that lets a shell complete all of this"""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and ``--config`` alone: a variable that happens to be called TRAIN is no business of ours."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def parser_of_everything() -> ArgumentParser:
    """The parser of the whole command line: for shells and documents, which read it without running anything."""
    parser: ArgumentParser = _parser().root_parser
    return parser


def main() -> None:
    """The entry point of ``mxd``: ends the process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough, as head does. The rest must go somewhere, or Python complains as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NOBODY_READS
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command line. Returns the exit code; what is wrong with it is said in one line on stderr."""
    try:
        return _command(words or ["--help"]).run()
    except ValidationError as error:
        return _complain(_problem(error))
    except SettingsError as error:
        return _complain(str(error).removeprefix("error parsing CLI: ").removeprefix("Error: "))
    except SilentError:
        return BAD_INPUT
    except UserError as error:
        return _complain(str(error))
    except Interrupted as asked:
        return _complain(str(asked), asked.exit_code)
    except _of_database() as error:
        told = _trouble(error)
        if told is None:
            raise
        return _complain(told)
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command to begin again.", INTERRUPTED)


def _command(words: Sequence[str]) -> Command | CommandGroup:
    defaults = _defaults(words)
    command = get_subcommand(CliApp.run(Mxd, list(words), cli_settings_source=_parser(), **defaults))
    assert isinstance(command, Command | CommandGroup)
    return command


def _parser() -> CliSettingsSource[Any]:
    return CliSettingsSource[Any](Mxd, add_argument_method=_add_argument)


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Everything that a parser and those below it take."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action


def _add_argument(parser: ArgumentParser, *names: str, **settings: Any) -> Action:
    """Spell ``-k`` as ``--k`` too, several values as they are typed, and say nothing of what is no default."""
    spelled = {name.lstrip("-") for name in names}
    longer = [f"--{name}" for name in spelled if len(name) == 1 and "help" not in spelled]
    said = (settings.get("help") or "").removesuffix(" (default: None)")
    settings["help"] = re.sub(r"\(default: \('?([^',]+)'?,\)\)$", r"(default: \1)", said)
    if isinstance(settings.get("metavar"), str):
        settings["metavar"] = re.sub(r"^tuple\[(.+),\.\.\.\]$", r"\1[,...]", settings["metavar"])
    return parser.add_argument(*names, *longer, **settings)


def _defaults(words: Sequence[str]) -> dict[str, Any]:
    """Settings from the file that ``--config`` names, for the command that is run."""
    named = [after for word, after in pairwise(words) if word == "--config"]
    named += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    if not named:
        return {}
    path = Path(named[-1])
    try:
        content = path.read_text("utf-8")
        values = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The settings in {path} cannot be read ({error}).") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold names and values.")
    return {words[0]: {name.replace("-", "_"): value for name, value in values.items()}}


def _problem(error: ValidationError) -> str:
    """The first thing that is wrong, with the flag that it is about."""
    first = error.errors()[0]
    names = [str(part) for part in first["loc"]]
    # What a command makes of its flags is checked under the same names, without the command's own before them.
    if names and names[0] in Mxd.model_fields:
        names = names[2 if names[0] in GROUPS else 1 :]
    flag = f"--{names[0].replace('_', '-')}: " if names else ""
    return f"{flag}{first['msg'].removeprefix('Value error, ')}"


def _of_database() -> tuple[type[Exception], ...]:
    """The errors of databases; none where nobody has needed one, as its package is slow to import."""
    if "sqlalchemy" not in sys.modules:
        return ()
    from sqlalchemy.exc import DBAPIError

    return (DBAPIError,)


def _trouble(error: Any) -> str | None:
    from trainer.opening import trouble_with

    return trouble_with(error)


def _complain(sentence: str, code: int = BAD_INPUT) -> int:
    # On one line, whatever a name in it holds.
    print(f"mxd: {' '.join(sentence.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
