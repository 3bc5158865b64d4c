"""Tools that write annotations; offered with ``--allow-write`` only."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mxd.backend.cli.mcp.answers import NO_CONTROL, Answer
from mxd.backend.cli.mcp.api import Api
from mxd.backend.cli.mcp.reading import ExpertId, RunName


class WritingTools:
    """Tools that store what was found."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.tools = (self.label_expert, self.note_on_expert, self.save_session)

    async def label_expert(
        self, run: RunName, expert: ExpertId, label: Annotated[str, Field(min_length=1, max_length=200)]
    ) -> Answer:
        """Set the label of an expert, in place of an earlier one."""
        await self._api.put(f"/runs/{run}/experts/{expert}/label", {"label": label})
        return Answer(result={"expert": expert, "label": label}, control=NO_CONTROL, sample={"labels": 1})

    async def note_on_expert(
        self, run: RunName, expert: ExpertId, note: Annotated[str, Field(min_length=1, max_length=10_000)]
    ) -> Answer:
        """Set the note on an expert, such as the evidence for its label, in place of an earlier one."""
        await self._api.put(f"/runs/{run}/experts/{expert}/note", {"note": note})
        return Answer(result={"expert": expert, "note": note}, control=NO_CONTROL, sample={"notes": 1})

    async def save_session(
        self,
        run: RunName,
        name: Annotated[str, Field(min_length=1, max_length=200)],
        prompt: Annotated[str, Field(max_length=20_000)],
        edits: Annotated[list[str], Field(max_length=64)],
        seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
    ) -> Answer:
        """Save prompt, edits and seed as a session that people can open in the dashboard."""
        steering = {"prompt": prompt, "edits": edits, "sampling": {"seed": seed}}
        saved = await self._api.post(f"/runs/{run}/sessions", {"name": name, "steering": steering})
        result = {"id": saved["id"], "page": f"/s/{saved['id']}"}
        return Answer(result=result, control=NO_CONTROL, sample={"sessions": 1})
