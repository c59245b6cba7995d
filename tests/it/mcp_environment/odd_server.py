"""An MCP server by hand: each tool does one odd thing."""

import json
import sys
import time

TOOLS = ["echo", "error", "rpc_error", "contents", "structured", "die", "garbage", "flood", "ask", "grow", "log", "never",
         "progress", "escapes"]
mode = sys.argv[1] if len(sys.argv) > 1 else ""
words = ""
if mode == "many":
    TOOLS += [f"tool_{number}" for number in range(100)]
    words = " at length" * 20
extra = []


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def ask(number, method):
    send({"id": number, "method": method, "params": {}})
    answer = receive()
    return answer.get("result", answer.get("error", {}).get("code"))


def listed(cursor):
    """Two pages."""
    names = TOOLS + extra
    page = names[5:] if cursor else names[:5]
    tools = [{"name": name, "description": f"does {name}{words}", "inputSchema": {"type": "object", "properties": {
        "words": {"type": "string", "description": "what to say"}}}} for name in page]
    return {"tools": tools} if cursor else {"tools": tools, "nextCursor": "second"}


def call(request, name, arguments):
    if name == "echo" or name.startswith("tool_"):
        return text(arguments.get("words", "nothing"))
    if name == "error":
        return text("it went wrong", isError=True)
    if name == "contents":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
                            {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"answer": 42}}
    if name == "die":
        print("my last words", file=sys.stderr, flush=True)
        sys.exit(3)
    if name == "garbage":
        print("hello, I am not JSON\n[1]\n{\"a\":1}", flush=True)
        return text("after garbage")
    if name == "flood":
        while True:
            print("x" * 100, flush=True)
    if name == "ask":
        return text(json.dumps([ask("p", "ping"), ask("r", "roots/list"), ask("s", "sampling/createMessage"),
                                ask("e", "elicitation/create")]))
    if name == "grow":
        extra.append("grown")
        send({"method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "grown":
        return text("a new tool")
    if name == "log":
        send({"method": "notifications/message", "params": {"level": "warning", "data": "mind \u001b[31mthis"}})
        return text("logged")
    if name == "escapes":
        return text("\u001b[31mred\u001b[0m")
    if name == "progress":
        send({"method": "notifications/progress",
              "params": {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1, "total": 4, "message": "on it"}})


while True:
    request = receive()
    method, number, params = request.get("method"), request.get("id"), request.get("params", {})
    if method == "initialize" and mode == "silent":
        time.sleep(1000)
    elif method == "initialize" and mode == "refusing":
        send({"id": number, "error": {"code": -32603, "message": "not today"}})
    elif method == "initialize":
        version = "1999-01-01" if mode == "old" else params["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {"tools": {}},
                                       "serverInfo": {"name": "odd", "version": "1"}, "instructions": "Be kind."}})
    elif method == "tools/list":
        send({"id": number, "result": listed(params.get("cursor"))})
    elif method == "tools/call" and params["name"] == "rpc_error":
        send({"id": number, "error": {"code": -32602, "message": "no such argument"}})
    elif method == "tools/call":
        result = call(request, params["name"], params["arguments"])
        if result:
            send({"id": number, "result": result})
    elif method == "notifications/cancelled":
        print(f"cancelled {params['requestId']}", file=sys.stderr, flush=True)
