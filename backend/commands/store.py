"""``mxd store``: is all in the store whole, does it take no more room than it needs, is it up to date."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from pydantic_settings import CliSubCommand

from backend.commands.base import Command, CommandGroup

MEGABYTE = 10**6


class CheckStore(Command):
    """Look whether the store is whole; exit code 1 where it is not. Nothing is written."""

    sample: Annotated[int, Field(ge=0)] = 200
    """Experts of each run, drawn anew each time, whose contexts are unpacked and compared with their statistics."""

    def run(self) -> int:
        """Say what is wrong, a line each."""
        from backend.database import opened, reading
        from backend.upkeep.check import check_store

        with opened(self.settings().store_url) as store, reading(store) as session:
            findings = list(check_store(session, self.sample))
            place = store.url.render_as_string()
        advice = "Index the runs named here again; if SQLite finds damage, go back to a copy of the file."
        words = [*findings, advice] if findings else [f"{place} is whole."]
        self.report({"store": place, "findings": findings}, "\n".join(words))
        return int(bool(findings))


class CompactStore(Command):
    """Give back the room of what was deleted; refused while somebody writes."""

    def run(self) -> int:
        """Do it, and say what it gave."""
        from backend.database import opened
        from backend.upkeep.compact import compact_store

        with opened(self.settings().store_url) as store:
            done = compact_store(store)
        before, after = done.bytes_before / MEGABYTE, done.bytes_after / MEGABYTE
        self.report(asdict(done), f"The store took {before:,.1f} MB and takes {after:,.1f} MB.")
        return 0


class UpgradeStore(Command):
    """Bring a store that an earlier version of this program wrote up to date; all of it or, on any error, nothing. Stop
    servers and make a copy first."""

    def run(self) -> int:
        """Do it, and say what is to be indexed again."""
        from backend.upkeep.upgrade import upgrade_store

        done = upgrade_store(self.settings().store_url)
        words = f"The store is of version {done.after} now (it was {done.before}); keep the copy until you have looked."
        if done.before == done.after:
            words = f"The store is up to date (version {done.after}); nothing was changed."
        if done.index_again:
            words += f"\nIndex these runs again, as their index cannot be read any more: {', '.join(done.index_again)}"
        self.report(asdict(done), words)
        return 0


class StoreCommand(CommandGroup):
    """Look after the store."""

    check: CliSubCommand[CheckStore]
    """is all in it whole"""
    compact: CliSubCommand[CompactStore]
    """give back the room of what was deleted"""
    upgrade: CliSubCommand[UpgradeStore]
    """bring what an earlier version wrote up to date"""
