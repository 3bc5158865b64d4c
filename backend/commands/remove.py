"""``mxd remove``: a run, its index and what people wrote about its experts."""

from __future__ import annotations

from pydantic_settings import CliPositionalArg

from backend.commands.base import Command
from trainer.errors import UserError


class RemoveCommand(Command):
    """Delete a run: its folder, its metrics and its index."""

    name: CliPositionalArg[str]
    """Name of the run."""
    with_labels: bool = False
    """Delete its labels, notes, tags and lists too, which nothing can bring back."""

    def run(self) -> int:
        """Delete it."""
        from backend import lists, notes, sessions, tags
        from backend.database import open_database, reading
        from trainer.removal import remove_run
        from trainer.store import writing

        settings = self.settings()
        store = open_database(settings.store_url)
        with reading(store) as session:
            written = sum(kind.count_of(session, self.name) for kind in (notes, tags, lists))
        if written and not self.with_labels:
            raise UserError(
                f"People have written {written} labels, notes, tags and lists on {self.name}; "
                "add --with-labels to delete them too."
            )
        remove_run(self.name, settings.data, store)
        with writing(store) as session:
            for kind in (notes, tags, lists):
                kind.remove_all(session, self.name)
            sessions.remove_sessions(session, self.name)
        store.dispose()
        self.report({"run": self.name, "labels_and_notes": written}, f"{self.name} is deleted.")
        return 0
