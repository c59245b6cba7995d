"""Hosts one environment of the user: loads and validates it, and passes commands and screens over the channel."""
import importlib
import inspect
import json
import os
import signal
import socket
import sys
import traceback
import types

_channel = socket.socket(fileno=os.dup(0))
_nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(_nothing, 0)
os.close(_nothing)
os.dup2(2, 1)
signal.signal(signal.SIGINT, signal.SIG_IGN)
# A cached .pyc is matched by mtime in whole seconds: a restart within one would not see a change.
sys.dont_write_bytecode = True
_input = _channel.makefile("rb")


def _send(message):
    _channel.sendall(json.dumps(message).encode() + b"\n")


def _provide(sources):
    """Makes the package `orchestrator` importable, from memory."""
    package = types.ModuleType("orchestrator")
    package.__path__ = []
    sys.modules["orchestrator"] = package
    for name, source in sources.items():
        module = types.ModuleType("orchestrator." + name)
        sys.modules["orchestrator." + name] = module
        exec(compile(source, f"<orchestrator.{name}>", "exec"), module.__dict__)
        setattr(package, name, module)


def _find(module):
    """The environment class of a module: its own before one that it only imports."""
    found = [obj for obj in (getattr(module, name) for name in dir(module))
             if inspect.isclass(obj) and hasattr(obj, "handle_command") and hasattr(obj, "get_screen")]
    own = [obj for obj in found if obj.__module__ == module.__name__]
    partly = [obj for obj in (getattr(module, name) for name in dir(module))
              if inspect.isclass(obj) and obj.__module__ == module.__name__
              and (hasattr(obj, "handle_command") or hasattr(obj, "get_screen"))]
    return next(iter(own + partly + found), None)


def _validate(cls):
    """The errors of a class, in the wording of the contract."""
    from orchestrator.types import CommandResponse, CommandText, ScreenSection
    empty = inspect.Signature.empty
    errors = []

    def is_type(annotation, wanted):
        return annotation is wanted or annotation == wanted.__name__

    if not hasattr(cls, "handle_command"):
        errors.append("Missing required method: handle_command")
    else:
        sig = inspect.signature(cls.handle_command)
        params = list(sig.parameters.values())
        if len(params) != 2:
            errors.append("handle_command must take exactly 2 parameters (self, cmd)")
        elif params[1].annotation is inspect.Parameter.empty:
            errors.append("handle_command cmd parameter must have type annotation")
        elif not is_type(params[1].annotation, CommandText):
            errors.append(f"handle_command cmd must be CommandText, got {params[1].annotation}")
        if sig.return_annotation is empty:
            errors.append("handle_command must have return type annotation")
        elif not is_type(sig.return_annotation, CommandResponse):
            errors.append(f"handle_command must return CommandResponse, got {sig.return_annotation}")
    if not hasattr(cls, "get_screen"):
        errors.append("Missing required method: get_screen")
    else:
        sig = inspect.signature(cls.get_screen)
        if len(sig.parameters) != 1:
            errors.append("get_screen must take only self parameter")
        if sig.return_annotation is empty:
            errors.append("get_screen must have return type annotation")
        elif not is_type(sig.return_annotation, ScreenSection):
            errors.append(f"get_screen must return ScreenSection, got {sig.return_annotation}")
    if hasattr(cls, "shutdown"):
        sig = inspect.signature(cls.shutdown)
        if len(sig.parameters) != 1:
            errors.append("shutdown must take only self parameter")
        if sig.return_annotation not in (empty, None, "None"):
            errors.append("shutdown must return None")
    return errors


def _load(job):
    """The environment, or None after an error was sent."""
    name = job["name"]
    try:
        if "program" in job:
            from orchestrator.interactive import InteractiveEnvironment
            return type("Program", (InteractiveEnvironment,), job["program"])()
        package = types.ModuleType("env")
        package.__path__ = [job["folder"]]
        sys.modules["env"] = package
        cls = _find(importlib.import_module("env." + name))
        if cls is None:
            _send({"failed": f"Failed to load environment '{name}': No environment class found"})
            return None
        errors = _validate(cls)
        if errors:
            lines = "".join(f"\n  - {error}" for error in errors)
            _send({"failed": f"Failed to load environment '{name}':{lines}"})
            return None
        return cls()
    except BaseException as error:
        trace = traceback.format_exc()
        _send({"failed": f"Error loading environment '{name}': {error}\n{trace.rstrip()}"})
        return None


def _command(environment, name, text):
    from orchestrator.types import CommandText
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            response = environment.handle_command(CommandText(text))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        output, success = getattr(response, "output", None), getattr(response, "success", None)
        if not isinstance(output, str) or not isinstance(success, bool):
            raise TypeError(f"handle_command returned {response!r}, not a CommandResponse(str, bool)")
        return {"output": output, "success": success}
    except KeyboardInterrupt:
        return {"output": "KeyboardInterrupt", "success": False}
    except Exception:
        return {"output": f"Environment error in {name}:\n{traceback.format_exc()}", "success": False}


def _screen(environment, name):
    try:
        section = environment.get_screen()
        content, max_lines = getattr(section, "content", None), getattr(section, "max_lines", None)
        if not isinstance(content, str) or not isinstance(max_lines, int):
            raise TypeError(f"get_screen returned {section!r}, not a ScreenSection(str, int)")
        return {"content": content, "max_lines": max(0, max_lines)}
    except Exception:
        return {"content": f"[Error getting screen from {name}:\n{traceback.format_exc()}]", "max_lines": 10}


def _serve():
    job = json.loads(_input.readline())
    sys.path[:] = [entry for entry in sys.path if entry]
    _provide(job["sources"])
    os.chdir(job["project"])
    # It may point into the project, where nothing may replace what the host itself imports.
    if job["search_path"] is not None:
        os.environ["PYTHONPATH"] = job["search_path"]
        sys.path[:0] = [entry for entry in job["search_path"].split(os.pathsep) if entry]
    sys.path.insert(0, job["project"])
    environment = _load(job)
    if environment is None:
        return
    _send({"ready": True})
    name = job["name"]
    for line in _input:
        message = json.loads(line)
        if message["type"] == "command":
            _send(_command(environment, name, message["command"]))
        elif message["type"] == "screen":
            _send(_screen(environment, name))
        else:
            break
    if hasattr(environment, "shutdown"):
        try:
            environment.shutdown()
        except Exception as error:
            print(f"Error shutting down {name}: {error}", file=sys.stderr)


_serve()
sys.stdout.flush()
os._exit(0)
