"""Formatting of chats by templates, which come with language models and may be slow or never end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mxd.backend.errors import BusyError
from mxd.backend.inference.run_loader import RunLoader
from mxd.trainer.language_model.chat_template import Turn, chat_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WAIT_SECONDS = 10.0
"""Longest wait for other chats. Formatting one takes milliseconds, and is stopped after 5 seconds."""


class ChatFormatter:
    """Formats one chat at a time in a thread of its own, so that a slow template delays nothing but chats."""

    def __init__(self, library: RunLoader) -> None:
        self._library = library
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "chats")

    async def text(self, run: str, turns: Sequence[Turn]) -> str:
        """Return chat turns as text, formatted by the chat template of the run's tokenizer.

        Raises:
            BusyError: other chats take too long.
            UserError: the tokenizer has no template, or the template rejects these turns.
        """
        tokenizer, start_token = await asyncio.to_thread(self._tokenizer, run)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._turn.acquire()
        except TimeoutError as error:
            raise BusyError("Other chats are being formatted. Try again in a moment.", WAIT_SECONDS) from error
        try:
            arguments = tokenizer, turns, start_token
            return await asyncio.get_running_loop().run_in_executor(self._thread, chat_text, *arguments)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the thread when it is idle."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _tokenizer(self, name: str) -> tuple[PreTrainedTokenizerBase, str | None]:
        """Return the tokenizer of a run and its start token."""
        loaded = self._library.run(name)
        return loaded.tokenizer, loaded.run.config.text.start_token
