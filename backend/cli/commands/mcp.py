"""``mxd mcp``: tools for agents."""

from __future__ import annotations

import os
from typing import ClassVar

from mxd.backend.cli.base import ModelCommand
from mxd.trainer.errors import UserError


class McpCommand(ModelCommand):
    """Serve tools for agents over the Model Context Protocol, on standard input and output.

    Agents can search and read experts, route texts, test experts on texts, steer and trace circuits. Every answer has a
    control and a sample size. Requires the package mcp: pip install 'mxd-explorer[mcp]'.
    """

    examples: ClassVar = (
        "mxd mcp",
        "mxd mcp --data data --allow-write",
        "mxd mcp --url https://mxd.example.org",
    )

    allow_write: bool = False
    """Also offer tools that write labels, notes and sessions."""
    url: str | None = None
    """URL of a running server to use, with the token in MXD_TOKEN (default: the runs of the data folder)."""

    def run(self) -> int:
        """Answer until the client disconnects."""
        try:
            import anyio
            import mcp  # noqa: F401
        except ImportError as error:
            raise UserError("The package mcp is not installed. Run: pip install 'mxd-explorer[mcp]'") from error
        from mxd.backend.cli.mcp.api import api_in_process, api_of_server
        from mxd.backend.cli.mcp.server import serve_stdio

        if self.url is None:
            api = api_in_process(self.settings(device=self.device, dtype=self.dtype))
        else:
            api = api_of_server(self.url, os.environ.get("MXD_TOKEN", ""))
        anyio.run(serve_stdio, api, self.allow_write)
        return 0
