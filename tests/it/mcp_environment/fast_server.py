"""A server made with the official package."""

import asyncio
import os

from mcp.server import MCPServer

server = MCPServer("fast")


@server.tool()
def add(a: int, b: int = 3) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def slow(name: str) -> str:
    """Writes a file, then waits."""
    open(name, "w").close()
    await asyncio.sleep(300)
    return "awake"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no")


@server.tool()
def look(path: str) -> str:
    """Tries to write a file, and shows a variable."""
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return f"{error.strerror} {os.environ.get('GIVEN')}"


server.run()
