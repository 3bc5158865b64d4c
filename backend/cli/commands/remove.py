"""``mxd remove``: delete a run with its index."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mxd.backend.cli.base import Command, Positional
from mxd.trainer.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class RemoveCommand(Command):
    """Delete a run: its folder, its metrics and its index. Asks for confirmation."""

    examples: ClassVar = (
        "mxd remove gpt2-l8-k32",
        "mxd remove gpt2-l8-k32 --yes",
        "mxd remove gpt2-l8-k32 --with-labels",
    )

    name: Positional[str]
    """Name of the run."""
    yes: bool = False
    """Delete without asking."""
    with_labels: bool = False
    """Also delete the labels, notes, tags and lists that users wrote. They cannot be restored."""

    def run(self) -> int:
        """Delete the run."""
        from mxd.backend.database import annotations, lists
        from mxd.backend.database.engine import opened, reading
        from mxd.backend.database.steering_sessions import remove_sessions
        from mxd.trainer.storage.database.open import writing
        from mxd.trainer.storage.run_records import remove_run

        settings = self.settings()
        with opened(settings.database_url) as database:
            with reading(database) as session:
                self._check_exists(session, settings.data)
                counts = (annotations.count_of, annotations.count_tags, lists.count_of)
                written = sum(count(session, self.name) for count in counts)
            if written and not self.with_labels:
                raise UserError(
                    f"Run '{self.name}' has {written} user-written labels, notes, tags and lists. "
                    "Add --with-labels to delete them too."
                )
            if not self.yes and not self._confirmed(written):
                self.report({"run": self.name, "removed": False}, "Nothing was deleted.")
                return 1
            remove_run(self.name, settings.data, database)
            with writing(database) as session:
                for remove in (annotations.remove_all, annotations.remove_all_tags, lists.remove_all, remove_sessions):
                    remove(session, self.name)
        self.report({"run": self.name, "removed": True, "labels_and_notes": written}, f"Deleted run '{self.name}'.")
        return 0

    def _check_exists(self, session: Session, data: Path) -> None:
        """Check that there is such a run, in the data folder or in the database."""
        from sqlalchemy import select

        from mxd.trainer.storage.database.tables import RunRecord
        from mxd.trainer.storage.run import run_names
        from mxd.trainer.utils.display import unknown_run

        known = {*run_names(data), *session.scalars(select(RunRecord.name))}
        if self.name not in known:
            raise NotFoundError(unknown_run(self.name, known))

    def _confirmed(self, written: int) -> bool:
        """Ask whether to delete the run.

        Raises:
            UserError: stdin is not a terminal.
        """
        if not sys.stdin.isatty():
            raise UserError(f"Cannot ask whether to delete run '{self.name}'. Add --yes to delete it without asking.")
        more = f", its index and {written} labels, notes, tags and lists" if written else " and its index"
        print(f"Delete run '{self.name}'{more}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
