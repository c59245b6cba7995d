"""Drives `orchestrator serve --mcp` with the official Python client; prints what it got as one JSON object."""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters


def text(result):
    return [content.text for content in result.content]


async def drive(mode, binary, project):
    got = {}
    server = StdioServerParameters(command=binary, args=["serve", "--mcp", "--project-dir", project])
    progress = []

    async def on_progress(done, total, message):
        progress.append(done)

    async with Client(server, mode=mode) as client:
        got["version"] = client.protocol_version
        got["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        await client.call_tool("bash", {"command": "word=kept"})
        good = await client.call_tool("bash", {"command": "echo $word"})
        got["good"] = [text(good), good.is_error]
        bad = await client.call_tool("bash", {"command": "echo no; false"})
        got["bad"] = [text(bad), bad.is_error]
        await client.call_tool("bash", {"command": "sleep 1"}, progress_callback=on_progress)
        got["progress"] = progress
        both = await asyncio.gather(
            client.call_tool("python", {"command": "6 * 7"}),
            client.call_tool("editor", {"command": "create a.txt\nhello"}),
        )
        got["both"] = [result.is_error for result in both]
        got["resources"] = [str(resource.uri) for resource in (await client.list_resources()).resources]
        read = await client.read_resource("screen://bash")
        got["screen"] = [content.text for content in read.contents]
        call = asyncio.create_task(client.call_tool("bash", {"command": "touch begun; sleep 300"}))
        while not (await asyncio.to_thread(exists, project)):
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        after = await client.call_tool("bash", {"command": "echo $word $?"})
        got["after"] = text(after)
    return got


def exists(project):
    import os

    return os.path.exists(project + "/begun")


async def main():
    binary, project = sys.argv[1:]
    import os

    results = {}
    for mode in ["legacy", "auto"]:
        results[mode] = await drive(mode, binary, project)
        os.remove(project + "/begun")
        os.remove(project + "/a.txt")
    print(json.dumps(results))


asyncio.run(main())
