"""``mxd push`` and ``mxd pull``: runs on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, overload

from mxd.backend.cli.base import Command, Positional
from mxd.trainer.config import RunName


class PushCommand(Command):
    """Upload a run to a Hugging Face Hub repo: weights, settings, tokenizer and a model card with its results.

    Sign in first with 'hf auth login'. Labels, notes and top examples are not uploaded.
    """

    examples: ClassVar = (
        "mxd push gpt2-l8-k32 alice/gpt2-mxd-l8",
        "mxd push gpt2-l8-k32 alice/gpt2-mxd-l8 --private",
        "mxd push my-run alice/my-run --language-model openai-community/gpt2",
    )

    name: Positional[str]
    """Name or folder of the run."""
    repository: Positional[str]
    """Hub repo as OWNER/NAME. It is created if it does not exist."""
    language_model: str | None = None
    """Public name of the language model, such as its Hub name (default: its name in the run's settings)."""
    private: bool = False
    """Create a private repo."""

    def run(self) -> int:
        """Upload, and print the URL of the commit."""
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.queries.overview import card_figures
        from mxd.trainer.storage.run import Run

        settings = self.settings()
        run = Run.load(self.name, settings.data)
        with opened(settings.database_url) as database, reading(database) as session:
            figures = card_figures(session, run.name)
        url = run.push_to_hub(
            self.repository, self.language_model, figures, visibility="private" if self.private else "public"
        )
        self.report({"run": run.name, "repository": self.repository, "commit": url}, f"Uploaded {run.name} to {url}")
        return 0


class PullCommand(Command):
    """Download a run from a Hugging Face Hub repo, or copy it from a folder, into the data folder."""

    examples: ClassVar = (
        "mxd pull alice/gpt2-mxd-l8",
        "mxd pull alice/gpt2-mxd-l8 --revision v2 --name gpt2-v2",
        "mxd pull ./exported-run --language-model ~/models/gpt2",
    )

    source: Positional[str]
    """Hub repo as OWNER/NAME, or a folder written by Run.save_pretrained."""
    revision: str | None = None
    """Branch, tag or commit."""
    name: RunName | None = None
    """Name of the run here (default: its name there)."""
    language_model: str | None = None
    """Folder or Hub name of the language model (default: the name in the run's settings)."""

    def run(self) -> int:
        """Download, and print a summary."""
        from mxd.backend.database.engine import opened
        from mxd.trainer.storage.run import Run
        from mxd.trainer.storage.run_records import adopt

        settings = self.settings()
        run = Run.from_pretrained(self.source, self.revision)
        with opened(settings.database_url) as database:
            adopted = adopt(run, self.name or run.name, absolute_path(self.language_model), settings.data, database)
        self.report(
            {"run": adopted.name, "source": self.source, "language_model": adopted.config.language_model},
            f"{adopted.name}: {adopted.config.method} for layer {adopted.config.layer} of "
            f"{adopted.config.language_model}. Next: mxd index {adopted.name} --dataset TEXT --tokens COUNT",
        )
        return 0


@overload
def absolute_path(language_model: str) -> str: ...
@overload
def absolute_path(language_model: None) -> None: ...
def absolute_path(language_model: str | None) -> str | None:
    """Return a local folder as an absolute path, because runs are used from other folders. Leave Hub names as is."""
    folder = Path(language_model).expanduser() if language_model else None
    return str(folder.resolve()) if folder is not None and folder.is_dir() else language_model
