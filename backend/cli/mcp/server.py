"""The MCP server: the tools, and a server on standard input and output."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib.metadata import version

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

from mxd.backend.cli.mcp.api import Api
from mxd.backend.cli.mcp.tools import MeasuringTools, ReadingTools, WritingTools

INSTRUCTIONS = """\
MxD Explorer: experts of mixtures of decoders that replace MLPs of language models.
Every answer has three parts: result, control (the same measure on a random expert or another baseline) and sample (its
size). Report all three. A label or a search hit is a hypothesis. To test one: test_expert_on_texts with texts of your
own, then steer, and compare both with their controls."""
READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
WRITING = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def reading_server(api: Api) -> MCPServer:
    """A server with the tools that change nothing."""
    server: MCPServer = MCPServer(
        "mxd-explorer", instructions=INSTRUCTIONS, version=version("mxd-explorer"), log_level="ERROR"
    )
    for tool in (*ReadingTools(api).tools, *MeasuringTools(api).tools):
        server.add_tool(tool, annotations=READ_ONLY)
    return server


def writing_server(api: Api) -> MCPServer:
    """A server with all tools."""
    server = reading_server(api)
    for tool in WritingTools(api).tools:
        server.add_tool(tool, annotations=WRITING)
    return server


async def serve_stdio(api: AbstractAsyncContextManager[Api], allow_write: bool) -> None:
    """Answer on standard input and output until the client closes them."""
    async with api as opened:
        server = writing_server(opened) if allow_write else reading_server(opened)
        await server.run_stdio_async()
