"""``mxd push`` and ``mxd pull``: runs on the hub."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from trainer.config import RunName


class PushCommand(Command):
    """Put a run into a repository of the hub: weights, settings, tokenizer and a card with its figures.

    Sign in first with: hf auth login. Labels, notes and contexts stay here.
    """

    name: CliPositionalArg[str]
    """Name of the run, or its folder."""
    repository: CliPositionalArg[str]
    """OWNER/NAME; made where there is none."""
    language_model: str | None = None
    """What the language model is called for others, such as its hub name; by default its name here."""
    private: bool = False
    """Make a private repository."""

    def run(self) -> int:
        """Push, and say where it is."""
        from backend.database import opened, reading
        from backend.queries.card import card_figures
        from trainer.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        with opened(settings.store_url) as store, reading(store) as session:
            figures = card_figures(session, run.name)
        address = run.push_to_hub(
            self.repository, self.language_model, figures, visibility="private" if self.private else "public"
        )
        self.report({"run": run.name, "repository": self.repository, "commit": address}, f"{run.name} is at {address}")
        return 0


class PullCommand(Command):
    """Fetch a run from a repository of the hub, or from a folder, into the data folder."""

    source: CliPositionalArg[str]
    """OWNER/NAME, or a folder that Run.save_pretrained wrote."""
    revision: str | None = None
    """Branch, tag or commit."""
    name: RunName | None = None
    """What it is called here; by default as there."""
    language_model: str | None = None
    """Where its language model is, where that is not what its settings say."""

    def run(self) -> int:
        """Fetch, and say what it is."""
        from backend.database import opened
        from trainer.adoption import adopt
        from trainer.run import Run

        settings = self.settings()
        run = Run.from_pretrained(self.source, self.revision)
        with opened(settings.store_url) as store:
            adopted = adopt(run, self.name or run.name, whole_path(self.language_model), settings.data, store)
        self.report(
            {"run": adopted.name, "source": self.source, "language_model": adopted.config.language_model},
            f"{adopted.name}: {adopted.config.method} for layer {adopted.config.layer} of "
            f"{adopted.config.language_model}; next: mxd index {adopted.name} --text … --tokens …",
        )
        return 0


def whole_path(language_model: str | None) -> str | None:
    """A folder by its whole path: the run is used from other folders than the one that this is typed in."""
    folder = Path(language_model).expanduser() if language_model else None
    return str(folder.resolve()) if folder is not None and folder.is_dir() else language_model
