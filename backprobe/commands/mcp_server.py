"""``backprobe mcp``: serves the tools of ``mcp_tools`` over the Model Context Protocol."""

from __future__ import annotations

import argparse
from typing import Any

from ..basics.errors import BackprobeError

ABOUT = """backprobe watches PyTorch training scripts and says what goes wrong inside loss.backward(): which module,
source line and tensor. Begin with run_script. Read the first finding: its first site is the line to look at.
explain(kind) says what a kind means and how it is mended. debug_script stops inside backward where a finding is not
enough."""


class Mcp:
    """Serve backprobe's tools to a model over the Model Context Protocol, on standard input and output.

    Needs the package mcp: pip install 'backprobe[mcp]'. Scripts that a model asks for are run as they are, with the
    rights of this process.
    """

    name = "mcp"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add no arguments: the command has none."""
        pass

    def run(self, options: argparse.Namespace) -> int:
        """Serve the tools until standard input ends; return 0."""
        server().run("stdio")
        return 0


def server() -> Any:
    """Return the MCP server with all tools registered, an ``MCPServer``.

    :raises BackprobeError: the package mcp is missing.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise BackprobeError(f"backprobe mcp needs the package mcp: pip install 'backprobe[mcp]' ({error})") from None
    from .. import __version__
    from .mcp_tools import READING, TOOLS

    made = MCPServer("backprobe", instructions=ABOUT, version=__version__)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    runs = ToolAnnotations(
        read_only_hint=False, destructive_hint=True, open_world_hint=True
    )  # whatever the script does
    for tool in TOOLS:
        made.tool(annotations=reads if tool in READING else runs)(tool)
    return made
