"""The loop inside the interpreter: reads a command from the channel, runs it in __main__, reports its end.

It has its own namespace and builtins, so that nothing a command redefines affects it, and imports what it needs before
the project is on sys.path. Only the end goes over the channel; output goes to descriptors 1 and 2. SIGINT is delivered
to the command while it runs and ignored otherwise.
"""
import sys

# An empty first entry is the project. It is removed until everything below is imported.
first = [""] if sys.path[:1] == [""] else []
del sys.path[:len(first)]

import __future__
import _signal
import fcntl
import inspect
import io
import linecache
import os
import re
import select
import site
import traceback
from _ast import Interactive, PyCF_ONLY_AST
from types import BuiltinFunctionType, ModuleType

MAX_VARIABLES = 100
MAX_NAME = 100
MAX_SCAN = 1 << 20
MIN_READ, MAX_READ = 1 << 12, 1 << 20
MIN_DESCRIPTOR = 500
MIN_RECURSION_LIMIT = 200
INTERRUPT = b"i"
STREAMS = {"stdin": (0, "r", "strict"), "stdout": (1, "w", "strict"), "stderr": (2, "w", "backslashreplace")}

main = sys.modules["__main__"].__dict__
builtins = sys.modules["builtins"]
process = os.getpid()
find_words = re.compile(r"\w+").findall
# Bound here, because a command may replace them in their modules.
close, getcwd, getpid, read, write = os.close, os.getcwd, os.getpid, os.read, os.write
gettrace, settrace, getprofile, setprofile = sys.gettrace, sys.settrace, sys.getprofile, sys.setprofile
getrecursionlimit, setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit
SIGINT, set_handler, default_handler = _signal.SIGINT, _signal.signal, _signal.default_int_handler
SIGURG = _signal.SIGURG
get_inheritable, dup2, StringIO, cache = os.get_inheritable, os.dup2, io.StringIO, linecache.cache
print_exception, name_of = traceback.print_exception, type.__dict__["__name__"].__get__
features = 0
for feature in __future__.all_feature_names:
    features |= getattr(__future__, feature).compiler_flag


# The channel: frames (a length and its bytes) are received, lines are sent.

inbox = bytearray()


def take(count):
    while len(inbox) < count:
        try:
            chunk = read(channel, min(max(count - len(inbox), MIN_READ), MAX_READ))
        except BaseException as error:
            # The user's handler for another signal raised, unless the channel itself is closed.
            if not is_open(channel):
                os._exit(1)
            report(error)
            continue
        if not chunk:
            os._exit(0)
        inbox.extend(chunk)
    taken = bytes(inbox[:count])
    del inbox[:count]
    return taken


def receive():
    return take(int.from_bytes(take(4), "little"))


def send(fields):
    line = "\0".join(fields).replace("\n", " ")
    rest = ("\n%s\n" % line).encode("utf-8", "replace")
    while rest:
        rest = rest[write(channel, rest):]


def is_open(descriptor):
    try:
        get_inheritable(descriptor)
    except OSError:
        return False
    return True


def is_interrupted(number):
    """Whether the notice of an interrupt for this command was received before it began."""
    while inbox or is_readable(0):
        if receive() == INTERRUPT + number.to_bytes(8, "little"):
            return True
    return False


# The streams: what a command closed or replaced is repaired before the next one.

def new_stream(name):
    descriptor, mode, errors = STREAMS[name]
    raw = io.FileIO(descriptor, mode + "b", closefd=False)
    raw.name = "<%s>" % name
    if mode == "r":
        stream = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", errors)
    else:
        stream = io.TextIOWrapper(raw, "utf-8", errors, "\n", write_through=True)
    stream.mode = mode
    return stream


def repair_streams():
    for descriptor, spare in ((0, empty), (1, output), (2, output)):
        if not is_open(descriptor) and is_open(spare):
            dup2(spare, descriptor)
    for name, stream in streams.items():
        if stream.closed:
            streams[name] = stream = new_stream(name)
        if sys.__dict__.get(name) is not stream:
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)


def flush_streams():
    for stream in (sys.__dict__.get("stdout"), sys.__dict__.get("stderr")):
        try:
            stream.flush()
        except Exception:
            pass


# Running: a command is one block, whose expressions are echoed as at a prompt.

def compile_block(source, filename):
    global flags
    code = compile_line(source, filename)
    if code is None:
        body = compile(source, filename, "exec", PyCF_ONLY_AST | flags, True).body
        code = compile(Interactive(body), filename, "single", flags, True)
    flags |= code.co_flags & features
    return code


def compile_line(source, filename):
    """Most commands are one line, and this takes half the time; if it fails, the block is compiled as a whole."""
    if "\n" in source or "\\" in source:
        return None
    try:
        return compile(source, filename, "single", flags, True)
    except SyntaxError:
        return None


def execute(source, filename):
    """Runs a command and returns the exit status that a script would have."""
    cache[filename] = (len(source), None, StringIO(source, None).readlines(), filename)
    try:
        code = compile_block(source, filename)
        main.setdefault("__builtins__", builtins)
        exec(code, main)
        return 0
    except SystemExit as error:
        return status_of(SystemExit.code.__get__(error))
    except BaseException as error:
        report(error)
        return 1


def status_of(code):
    if code is None:
        return 0
    if not issubclass(type(code), int):
        print_error(code)
        return 1
    if int.__eq__(code, 0):
        return 0
    if getpid() == process:
        print_error("SystemExit: " + int.__repr__(code))
    return int.__and__(code, 0xFF) or 1


def report(error):
    """Prints a traceback that begins with the user's own lines."""
    trace = BaseException.__traceback__.__get__(error)
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    BaseException.with_traceback(error, trace)
    sys.last_type, sys.last_value, sys.last_traceback, sys.last_exc = type(error), error, trace, error
    try:
        hook = sys.excepthook
        (print_exception if hook is sys.__excepthook__ else hook)(type(error), error, trace)
    except Exception:
        print_traceback(error, trace)


def print_traceback(error, trace):
    try:
        repair_streams()
        print_exception(type(error), error, trace)
    except Exception:
        print_error(name_of(type(error)) + ", whose traceback cannot be shown")


def print_error(message):
    try:
        print(message, file=sys.stderr)
    except Exception:
        write(output, name_of(type(message)).encode() + b"\n")


def perform(number, source):
    handler, tracer, profiler = hooks
    repair_streams()
    received = []
    try:
        # Nothing may be raised while the channel is read, or the bytes are lost: a signal is recorded and raised later.
        set_handler(SIGINT, lambda number, frame: received.append(number))
        is_requested = is_interrupted(number)
        set_handler(SIGINT, handler)
        if is_requested or received:
            # The signal was delivered already, or is about to be: one KeyboardInterrupt is enough.
            set_handler(SIGINT, ignore)
            raise KeyboardInterrupt
        if tracer or profiler:
            settrace(tracer)
            setprofile(profiler)
        status = execute(source, "<python-input-%d>" % number)
    except BaseException as error:
        report(error)
        status = 1
    flush_streams()
    return status


def ignore(number, frame):
    pass


def reset_hooks():
    """Removes what a command installed and would affect the driver: the handler of SIGINT, tracers, profilers."""
    global hooks
    if getrecursionlimit() < MIN_RECURSION_LIMIT:
        setrecursionlimit(MIN_RECURSION_LIMIT)
    tracer, profiler = gettrace(), getprofile()
    if tracer or profiler:
        settrace(None)
        setprofile(None)
    handler = set_handler(SIGINT, ignore)
    if handler is not ignore:
        hooks = default_handler if handler is None else handler, tracer, profiler


# The variables: names and types, without running any code of the user.

def type_name(value):
    kind = type(value)
    return name_of(value if issubclass(kind, type) else kind)


def variables(source):
    """What the screen shows: mentioned variables in their order, then new ones, then the rest."""
    global order
    shown = {name: value for name, value in list(main.items())
             if type(name) is str and name[:1] != "_" and name.isidentifier()
             and type(value) is not BuiltinFunctionType and not issubclass(type(value), ModuleType)}
    mentioned = set(find_words(source[:MAX_SCAN])) if order else ()
    kept = [name for name in order if name in shown]
    known = set(kept)
    order = [name for name in kept if name in mentioned]
    order += [name for name in shown if name not in known]
    order += [name for name in kept if name not in mentioned]
    fields = []
    for name in order[:MAX_VARIABLES]:
        fields += brief(name), brief(type_name(shown[name]))
    return fields


def brief(text):
    return text if len(text) <= MAX_NAME else text[:MAX_NAME] + "\u2026"


def directory():
    global working_directory
    try:
        working_directory = getcwd()
    except OSError:
        if not working_directory.endswith(" (deleted)"):
            working_directory += " (deleted)"
    return working_directory


def serve():
    while True:
        frame = receive()
        if frame[:1] == INTERRUPT:
            continue
        number, source = int.from_bytes(frame[1:9], "little"), frame[9:].decode("utf-8")
        status = 1
        try:
            try:
                status = perform(number, source)
            finally:
                reset_hooks()
        except BaseException:
            reset_hooks()
        if getpid() != process:
            # A forked child of the command returned from it; as at a prompt, it finds EOF.
            sys.exit(status)
        send_end(number, status, source)


def send_end(number, status, source):
    for _ in range(3):
        try:
            send(["end", str(number), str(status), directory()] + variables(source))
            return
        except BaseException:
            # The user's signal handler raised. It is sent again: the receiver knows the number and ignores a second one.
            continue
    os._exit(1)


# `inspect` does not find the source of a class whose module has no file.

def file_of(thing, plain=inspect.getfile):
    try:
        return plain(thing)
    except (TypeError, OSError):
        if not issubclass(type(thing), type) or thing.__module__ != "__main__":
            raise
        define = re.compile(r"^\s*class\s+%s\b" % re.escape(thing.__name__)).match
        for filename, entry in reversed(list(cache.items())):
            if filename.startswith("<python-input-") and any(map(define, entry[2])):
                return filename
        raise


# From here on: setup, so that the interpreter looks like one that was started at a prompt.

def duplicate_high(descriptor):
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR)
    except OSError:
        return os.dup(descriptor)


channel, output = duplicate_high(0), duplicate_high(1)
nothing = os.open(os.devnull, os.O_RDONLY)
empty = duplicate_high(nothing)
os.dup2(nothing, 0)
os.close(nothing)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: close(channel))
poller = select.poll()
poller.register(channel, select.POLLIN)
is_readable = poller.poll
set_handler(SIGINT, ignore)
# It follows an interrupt that arrived just before a system call, which it ends so that KeyboardInterrupt can be raised.
set_handler(SIGURG, ignore)

hooks = default_handler, None, None
flags, order, working_directory = 0, [], ""
inspect.getfile = file_of
streams = {name: new_stream(name) for name in STREAMS}
repair_streams()
sys.argv[:] = [""]
if hasattr(sys, "orig_argv"):
    del sys.orig_argv[1:]
for name in ("posix", "driver", "part"):
    main.pop(name, None)

search_path = receive()
if search_path[:1] == b"=":
    os.environb[b"PYTHONPATH"] = search_path[1:]
    sys.path[:0] = [entry for entry in os.fsdecode(search_path[1:]).split(os.pathsep) if search_path != b"="]
    site.removeduppaths()
sys.path[:0] = first
send(["ready"])
serve()
