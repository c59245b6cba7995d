"""The loop inside the interpreter: takes a command from the channel, runs it in __main__, tells the end.

It has a namespace of its own, with builtins of its own, so that nothing a command redefines reaches it, and it imports
what it needs before the project is on sys.path. Only the end goes over the channel; what is printed goes to descriptors
1 and 2. SIGINT is the command's while it runs and nobody's otherwise.
"""
import sys

# An empty first entry is the project. Until everything below is imported it is not there.
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

MOST_VARIABLES = 100
LONGEST_NAME = 100
LONGEST_SCAN = 1 << 20
SMALLEST_READ, LARGEST_READ = 1 << 12, 1 << 20
LOWEST_DESCRIPTOR = 500
LOWEST_RECURSION_LIMIT = 200
INTERRUPT = b"i"
STREAMS = {"stdin": (0, "r", "strict"), "stdout": (1, "w", "strict"), "stderr": (2, "w", "backslashreplace")}

main = sys.modules["__main__"].__dict__
builtins = sys.modules["builtins"]
process = os.getpid()
words = re.compile(r"\w+").findall
# Bound here, for a command may put something else in their places.
close, getcwd, getpid, read, write = os.close, os.getcwd, os.getpid, os.read, os.write
gettrace, settrace, getprofile, setprofile = sys.gettrace, sys.settrace, sys.getprofile, sys.setprofile
getrecursionlimit, setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit
SIGINT, set_handler, default_handler = _signal.SIGINT, _signal.signal, _signal.default_int_handler
get_inheritable, dup2, StringIO, cache = os.get_inheritable, os.dup2, io.StringIO, linecache.cache
print_exception, name_of = traceback.print_exception, type.__dict__["__name__"].__get__
features = 0
for feature in __future__.all_feature_names:
    features |= getattr(__future__, feature).compiler_flag


# The channel: frames of a length and its bytes come in, lines go out.

inbox = bytearray()


def take(count):
    while len(inbox) < count:
        try:
            chunk = read(channel, min(max(count - len(inbox), SMALLEST_READ), LARGEST_READ))
        except BaseException as error:
            # A handler of the user's for some other signal raised, unless the channel itself is gone.
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
    """Whether an interrupt was sent for this command before it could be hit by one."""
    while inbox or is_readable(0):
        if receive() == INTERRUPT + number.to_bytes(8, "little"):
            return True
    return False


# The streams: what a command closed or replaced is put right before the next one.

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


def mend_streams():
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


# Running: a command is one block, whose expressions show as they do at a prompt.

def translate(source, filename):
    global flags
    code = translate_line(source, filename)
    if code is None:
        body = compile(source, filename, "exec", PyCF_ONLY_AST | flags, True).body
        code = compile(Interactive(body), filename, "single", flags, True)
    flags |= code.co_flags & features
    return code


def translate_line(source, filename):
    """Most commands are a line, and this takes half the time; what it refuses is for the long way to judge."""
    if "\n" in source or "\\" in source:
        return None
    try:
        return compile(source, filename, "single", flags, True)
    except SyntaxError:
        return None


def execute(source, filename):
    """Runs a command and returns the status that a script would have ended with."""
    cache[filename] = (len(source), None, StringIO(source, None).readlines(), filename)
    try:
        code = translate(source, filename)
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
        complain(code)
        return 1
    if int.__eq__(code, 0):
        return 0
    if getpid() == process:
        complain("SystemExit: " + int.__repr__(code))
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
        show_anyhow(error, trace)


def show_anyhow(error, trace):
    try:
        mend_streams()
        print_exception(type(error), error, trace)
    except Exception:
        complain(name_of(type(error)) + ", whose traceback cannot be shown")


def complain(message):
    try:
        print(message, file=sys.stderr)
    except Exception:
        write(output, name_of(type(message)).encode() + b"\n")


def perform(number, source):
    handler, tracer, profiler = habits
    mend_streams()
    noted = []
    try:
        # While the channel is read nothing may be raised, or what was read is lost; a signal is noted and raised after.
        set_handler(SIGINT, lambda number, frame: noted.append(number))
        was_asked = is_interrupted(number)
        set_handler(SIGINT, handler)
        if was_asked or noted:
            # The signal is over already, or about to come: once is enough.
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


def calm():
    """Takes back from a command what would reach us: SIGINT, and whoever looks on."""
    global habits
    if getrecursionlimit() < LOWEST_RECURSION_LIMIT:
        setrecursionlimit(LOWEST_RECURSION_LIMIT)
    tracer, profiler = gettrace(), getprofile()
    if tracer or profiler:
        settrace(None)
        setprofile(None)
    handler = set_handler(SIGINT, ignore)
    if handler is not ignore:
        habits = default_handler if handler is None else handler, tracer, profiler


# The variables: names and types, without a line of anybody's code being run.

def type_name(value):
    kind = type(value)
    return name_of(value if issubclass(kind, type) else kind)


def variables(source):
    """Returns what the screen shows: the mentioned in their order, then the new, then the rest."""
    global order
    shown = {name: value for name, value in list(main.items())
             if type(name) is str and name[:1] != "_" and name.isidentifier()
             and type(value) is not BuiltinFunctionType and not issubclass(type(value), ModuleType)}
    mentioned = set(words(source[:LONGEST_SCAN])) if order else ()
    kept = [name for name in order if name in shown]
    known = set(kept)
    order = [name for name in kept if name in mentioned]
    order += [name for name in shown if name not in known]
    order += [name for name in kept if name not in mentioned]
    told = []
    for name in order[:MOST_VARIABLES]:
        told += brief(name), brief(type_name(shown[name]))
    return told


def brief(text):
    return text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "\u2026"


def directory():
    global place
    try:
        place = getcwd()
    except OSError:
        if not place.endswith(" (deleted)"):
            place += " (deleted)"
    return place


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
                calm()
        except BaseException:
            calm()
        if getpid() != process:
            # A child of the command came back from it; like at a prompt, there is nothing more to read for it.
            sys.exit(status)
        tell(number, status, source)


def tell(number, status, source):
    for _ in range(3):
        try:
            send(["end", str(number), str(status), directory()] + variables(source))
            return
        except BaseException:
            # A handler of the user's raised in the middle of it. It is told again: who hears it knows the number.
            continue
    os._exit(1)


# What a class was defined by is not known to `inspect` where its module has no file.

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


# From here on the interpreter is made to look like one that was started at a prompt.

def out_of_the_way(descriptor):
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
    except OSError:
        return os.dup(descriptor)


channel, output = out_of_the_way(0), out_of_the_way(1)
nothing = os.open(os.devnull, os.O_RDONLY)
empty = out_of_the_way(nothing)
os.dup2(nothing, 0)
os.close(nothing)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: close(channel))
poller = select.poll()
poller.register(channel, select.POLLIN)
is_readable = poller.poll
set_handler(SIGINT, ignore)

habits = default_handler, None, None
flags, order, place = 0, [], ""
inspect.getfile = file_of
streams = {name: new_stream(name) for name in STREAMS}
mend_streams()
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
