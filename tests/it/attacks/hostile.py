"""A program that tries to escape from the sandbox, and records the result of each attempt.

It runs as a check or in an environment. `facts.json` beside it describes what is outside: files, listeners, a process, a
terminal. An attempt records "worked" or the error of the system; the test evaluates it. Nothing outside is touched except
what the facts name and our own parent processes.
"""
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

FACTS = json.load(open("facts.json"))
HOME, ROOT, OPEN = FACTS["home"], FACTS["root"], FACTS["open"]
DECOY = FACTS["decoy"]
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
# System call numbers of the two common architectures; elsewhere these attempts are left out.
NUMBERS = {
    "clone": (56, 220), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "prlimit64": (302, 261), "ioprio_set": (251, 30), "sched_setattr": (314, 274),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "open_by_handle_at": (304, 265), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "kcmp": (312, 272), "shmget": (29, 194), "msgget": (68, 186), "migrate_pages": (256, 238), "syslog": (103, 116),
    "settimeofday": (164, 170), "swapon": (167, 224), "sethostname": (170, 161),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "clone3": (435, 435),
    "process_madvise": (440, 440), "mount_setattr": (442, 442), "process_mrelease": (448, 448), "openat2": (437, 437),
    "fchmodat2": (452, 452),
}
NEWUSER, NEWNS, NEWPID, NEWNET = 0x10000000, 0x00020000, 0x20000000, 0x40000000
ATTEMPTS = []


def attempt(row, name):
    def add(function):
        ATTEMPTS.append((row, name, function))
        return function
    return add


def each(row, name, values):
    """One attempt for each of several targets."""
    def add(function):
        for value in values:
            ATTEMPTS.append((row, f"{name} {value}", lambda value=value: function(value)))
        return function
    return add


class Absent(Exception):
    """The attempt needs something that this system lacks."""


def call(name, *arguments):
    """Makes a system call by its number; raises an error."""
    if platform.machine() not in ("x86_64", "aarch64"):
        raise Absent()
    number = NUMBERS[name][0 if X86 else 1]
    wide = [argument if isinstance(argument, (bytes, ctypes.Array, ctypes.Structure, type(None)))
            else ctypes.c_long(argument) for argument in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def chain():
    """Our parent processes, as far as they are visible."""
    found, pid = [], os.getppid()
    while 1 < pid:
        try:
            if open(f"/proc/{pid}/comm").read().strip() == "orchestrator":
                found.append(pid)
            pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


CHAIN = chain()
PARENT = str((CHAIN or [1])[0])
OTHERS = [pid for pid in [DECOY, *CHAIN] if pid != os.getpid()]
# The init process of the namespace is our own, but access to its memory is an escape.
WITH_THE_FIRST = OTHERS + ([1] if 1 not in OTHERS else [])


def write(path, flags=os.O_WRONLY | os.O_APPEND | os.O_CREAT):
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, b"hostile\n")
    finally:
        os.close(descriptor)


def is_ours(path):
    """Whether this path is private in the sandbox."""
    return any(os.path.realpath(path).startswith(own + "/") for own in FACTS["private"])


# --- files outside

@each("A23", "append to", [".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x.desktop", "new",
                            ".cargo/bin/tool", ".cargo/new"])
def append_to(name):
    write(f"{HOME}/{name}")


@each("A23", "install in", ["/var/spool/cron/crontabs/x", "/etc/cron.d/x", "/etc/profile.d/x.sh", "/etc/ld.so.preload",
                            "/usr/local/bin/x", "/etc/passwd", "/root/x", "/opt/x", "/boot/x", "/srv/x", "/x"])
def install_in(path):
    # Nothing is written, so that an existing file stays unchanged even if it can be opened.
    existed = os.path.lexists(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    if not existed:
        os.unlink(path)


@each("A23", "run", ["systemctl --user start x", "systemd-run --user true"])
def run(line):
    """The session bus must be unreachable."""
    try:
        done = subprocess.run(line.split(), capture_output=True, timeout=10, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Absent()
    if done.returncode:
        raise OSError(errno.EPERM, line)


@attempt("A23", "truncate, delete, rename, link, replace and make folders outside")
def change_outside():
    refused = 0
    precious = f"{HOME}/precious"
    for change in (lambda: os.truncate(precious, 0), lambda: os.unlink(precious),
                   lambda: os.rename(precious, f"{HOME}/moved"), lambda: os.rename(precious, "stolen"),
                   lambda: os.rename("facts.json", f"{HOME}/given"), lambda: os.link(precious, "linked"),
                   lambda: os.symlink("x", f"{HOME}/link"), lambda: os.mkdir(f"{HOME}/folder"),
                   lambda: os.mkfifo(f"{HOME}/fifo"), lambda: os.rmdir(f"{HOME}/empty"),
                   lambda: write(precious, os.O_WRONLY | os.O_TRUNC)):
        try:
            change()
        except OSError as error:
            refused, last = refused + 1, error
    if refused == 11:
        raise last


@attempt("A23", "write through a link in the workspace")
def through_a_link():
    if not os.path.lexists("way-out"):
        os.symlink(f"{HOME}/precious", "way-out")
    try:
        write("way-out")
    finally:
        os.unlink("way-out")


METADATA = f"{HOME}/metadata"


@attempt("A24", "chmod")
def change_mode():
    os.chmod(METADATA, 0o751)


@attempt("A24", "utime")
def change_times():
    os.utime(METADATA, (1, 1))


@attempt("A24", "setxattr")
def change_attributes():
    os.setxattr(METADATA, "user.hostile", b"1")


@attempt("A24", "chown")
def change_owner():
    os.chown(METADATA, os.getuid(), os.getgid())


@each("A24", "chmod as it is", ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/tty", "/usr", "/etc", "/etc/passwd",
                                "/usr/bin/env", "/sys", "/opt"])
def change_nothing(path):
    """A change to the same value."""
    os.chmod(path, os.stat(path).st_mode & 0o7777)


@each("A24", "chmod in what is opened by name", ["", "/file"])
def change_opened(name):
    os.chmod(OPEN + name, 0o700)


@each("A25", "write through", ["/proc/self/root", "/proc/PARENT/root", "/proc/1/root", "/proc/self/task/SELF/root",
                               "/proc/PARENT/cwd/../..", "/proc/self/cwd/../../home/../.."])
def through_proc(way):
    way = way.replace("PARENT", PARENT).replace("SELF", str(os.getpid()))
    write(f"{way}{HOME}/precious")


@each("A25", "write through a descriptor in", ["/proc/self/fd", "/dev/fd", "/proc/thread-self/fd"])
def through_descriptor(folder):
    for flags in (os.O_RDONLY, os.O_PATH):
        try:
            held = os.open(f"{HOME}/precious", flags)
        except OSError as error:
            last = error
            continue
        try:
            write(f"{folder}/{held}", os.O_WRONLY)
            return
        except OSError as error:
            last = error
        finally:
            os.close(held)
    raise last


@each("A25", "write through a descriptor of", ["PARENT", "1"])
def through_foreign_descriptor(whose):
    folder = f"/proc/{whose.replace('PARENT', PARENT)}/fd"
    names = os.listdir(folder)
    for name in names:
        os.readlink(f"{folder}/{name}")


@attempt("A26", "more than three descriptors")
def inherited():
    # The report channel of test runners is meant to be open in a check; a tool has none.
    channel = os.environ.get("TEST_REPORT_FD", "-1")
    script = ("import os,sys; print([n for n in os.listdir('/proc/self/fd') if 2 < int(n) and n != '%s'"
              " and os.path.exists(f'/proc/self/fd/{n}')])" % channel)
    found = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True,
                           close_fds=False).stdout.strip()
    if found == "[]":
        raise OSError(errno.EBADF, "")
    return found


# --- secrets

@attempt("A27", "find the key in an environment or a command line")
def key_in_environment():
    key = "".join(FACTS["key"])
    found = [name for name, value in os.environ.items() if key in value]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            try:
                if key.encode() in open(f"/proc/{pid}/{name}", "rb").read():
                    found.append(f"{pid}/{name}")
            except OSError:
                pass
    if not found:
        raise OSError(errno.ENOENT, "")
    return str(found)


@attempt("A27", "read memory, environment or descriptors of a parent")
def parents_memory():
    for pid in [*CHAIN, 1]:
        for name in ("mem", "environ", "maps", "fd/0", "auxv", "syscall", "stack"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if name == "mem":
                        return f"{pid}/mem"
                    if file.read(1):
                        return f"{pid}/{name}"
            except OSError as error:
                last = error
    raise last


@each("A27", "a variable that steers", ["LD_PRELOAD", "BASH_ENV", "ENV", "PYTHONSTARTUP", "GIT_DIR", "PERL5OPT", "NODE_OPTIONS",
                                        "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "ANTHROPIC_API_KEY", "SOME_TOKEN"])
def steered(name):
    if name not in os.environ:
        raise OSError(errno.ENOENT, name)
    # In a check node loads our reporter, which is read-only here.
    loads_ours = re.fullmatch('--require="([^"]+/report[.]cjs)"', os.environ[name]) if name == "NODE_OPTIONS" else None
    if loads_ours:
        open(loads_ours[1], "a").close()
        os.rename(loads_ours[1], loads_ours[1] + ".old")
    return os.environ[name]


@each("A28", "read", FACTS["secrets"])
def read_secret(path):
    with open(path, "rb") as file:
        return repr(file.read(20))


@each("A28", "list", [HOME, ROOT, f"{ROOT}/logs", f"{ROOT}/specs", f"{HOME}/.ssh", "/root", "/mnt", "/media", "/srv", "/var/log", "/boot"])
def list_folder(path):
    if not os.path.isdir(path):
        raise OSError(errno.ENOENT, path)
    # A parent folder of a visible path exists and contains only that path.
    names = set(os.listdir(path)) - set(FACTS["ways"].get(path, []))
    if not names:
        raise OSError(errno.ENOENT, path)
    return str(names)


# --- sockets and packets

def connect(family, address, kind=socket.SOCK_STREAM, protocol=0):
    with socket.socket(family, kind, protocol) as one:
        one.settimeout(1)
        one.connect(address)
        one.sendall(b"hostile")


@each("A29", "talk to the socket", FACTS["sockets"])
def talk(path):
    connect(socket.AF_UNIX, path)


@each("A29", "send a datagram to", FACTS["datagrams"])
def send_datagram(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendmsg([b"hostile"], [], 0, path)


@each("A29", "talk to a socket of the session", ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket",
                                                 "/run/systemd/notify", "/run/systemd/private", "/tmp/.X11-unix/X0"])
def talk_to_session(path):
    connect(socket.AF_UNIX, path)


@attempt("A30", "talk to an abstract socket")
def talk_abstract():
    connect(socket.AF_UNIX, "\0" + FACTS["abstract"])


@attempt("A30", "send a datagram to an abstract socket")
def send_abstract():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(b"hostile", "\0" + FACTS["abstract"] + "-datagram")


@each("A31", "connect to", [f"127.0.0.1 {FACTS['tcp']}", f"127.0.0.1 {FACTS['model']}", f"::1 {FACTS['tcp6']}",
                            f"{FACTS['address']} {FACTS['everywhere']}", f"0.0.0.0 {FACTS['tcp']}", "192.0.2.1 80"])
def connect_to(where):
    host, port = where.split()
    connect(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port)))


@each("A32", "send to", [f"127.0.0.1 {FACTS['udp']}", f"{FACTS['address']} {FACTS['udp']}", "192.0.2.1 53"])
def send_to(where):
    """In a private network this is sent and arrives nowhere; the listener outside decides."""
    host, port = where.split()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"hostile", (host, int(port)))


@attempt("A32", "resolve a name")
def resolve():
    try:
        return socket.gethostbyname("hostile-name.example")
    except OSError:
        raise OSError(errno.ENOENT, "")


@each("A32", "open a socket of", ["NETLINK RAW 0", "PACKET RAW 0", "VSOCK STREAM 0", "INET RAW 1", "ALG SEQPACKET 0", "BLUETOOTH RAW 0",
                                  "CAN RAW 1", "KEY RAW 2", "TIPC STREAM 0"])
def open_socket(words):
    family, kind, protocol = words.split()
    number = {"NETLINK": 16, "PACKET": 17, "VSOCK": 40, "INET": 2, "ALG": 38, "BLUETOOTH": 31, "CAN": 29, "KEY": 15, "TIPC": 30}[family]
    socket.socket(number, getattr(socket, "SOCK_" + kind), int(protocol)).close()


@attempt("A33", "connect by multipath TCP")
def connect_multipath():
    connect(socket.AF_INET, ("127.0.0.1", FACTS["tcp"]), protocol=262)


@attempt("A33", "send with the opening of a connection")
def fast_open():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(1)
        one.sendto(b"hostile", 0x20000000, ("127.0.0.1", FACTS["tcp"]))


@attempt("A33", "reach the host through a pair of sockets")
def pair():
    """A socket pair works, but cannot reach anything outside."""
    one, _ = socket.socketpair()
    one.connect(FACTS["sockets"][0])


# --- processes outside

def on_others(attack, others=None):
    """Attacks every process of the facts and our parents; one success is enough."""
    last = OSError(errno.ESRCH, "")
    for pid in others or OTHERS:
        try:
            attack(pid)
            return f"on {pid}"
        except OSError as error:
            last = error
    raise last


def on_the_decoy(attack):
    if DECOY == os.getpid():
        raise Absent()
    attack(DECOY)


@attempt("A34", "kill a process outside")
def kill():
    on_the_decoy(lambda pid: os.kill(pid, signal.SIGKILL))


@attempt("A34", "kill its group")
def kill_group():
    on_the_decoy(lambda pid: os.kill(-pid, signal.SIGKILL))


@attempt("A34", "signal the orchestrator")
def signal_parents():
    on_others(lambda pid: os.kill(pid, signal.SIGINT))


@attempt("A34", "signal everybody")
def signal_all():
    """A harmless signal. The kernel reports success in any case; the decoy decides."""
    os.kill(-1, signal.SIGURG)


@attempt("A34", "signal by a descriptor")
def signal_by_descriptor():
    on_the_decoy(lambda pid: call("pidfd_send_signal", call("pidfd_open", pid, 0), signal.SIGKILL, None, 0))


@attempt("A34", "signal a thread, and queue a signal")
def signal_thread():
    for attack in (lambda pid: call("tgkill", pid, pid, signal.SIGKILL),
                   lambda pid: call("rt_sigqueueinfo", pid, signal.SIGKILL, struct.pack("iii", 9, 0, -1) + bytes(116))):
        try:
            return on_the_decoy(attack)
        except OSError as error:
            last = error
    raise last


@attempt("A34", "make the kernel send a signal")
def signal_by_input():
    def attack(pid):
        one, other = socket.socketpair()
        fcntl.fcntl(one, fcntl.F_SETOWN, pid)
        fcntl.fcntl(one, 10, signal.SIGKILL)  # F_SETSIG
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        other.send(b"x")
        time.sleep(0.05)
        os.kill(pid, 0)
    on_the_decoy(attack)


@each("A35", "limit", ["CPU", "FSIZE", "NOFILE", "NPROC"])
def limit(what):
    number = getattr(resource, f"RLIMIT_{what}")
    on_the_decoy(lambda pid: resource.prlimit(pid, number, (0, 0)))


@attempt("A35", "limit the orchestrator")
def limit_parents():
    def attack(pid):
        if pid == DECOY:
            raise OSError(errno.ESRCH, "")
        # To the current value: the run would not notice, but it is an escape.
        resource.prlimit(pid, resource.RLIMIT_CPU, resource.prlimit(pid, resource.RLIMIT_CPU))
    on_others(attack)


@attempt("A35", "renice")
def renice():
    on_the_decoy(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))


@attempt("A35", "renice all of the user")
def renice_user():
    """In a private namespace all processes are our own."""
    os.setpriority(os.PRIO_USER, os.getuid(), os.getpriority(os.PRIO_PROCESS, 0))
    os.kill(DECOY, 0)


@attempt("A35", "affinity")
def affinity():
    on_the_decoy(lambda pid: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}))


@attempt("A35", "scheduler")
def scheduler():
    on_the_decoy(lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))


@attempt("A35", "priority of input and output")
def ioprio():
    on_the_decoy(lambda pid: call("ioprio_set", 1, pid, 3 << 13))


@attempt("A35", "who is ended first when memory is short")
def oom_score():
    on_others(lambda pid: write(f"/proc/{pid}/oom_score_adj", os.O_WRONLY))


@each("A36", "trace", ["decoy", "parents", "1"])
def trace(whom):
    seize, detach = 0x4206, 17
    pids = {"decoy": [DECOY], "parents": CHAIN or [1], "1": [1]}[whom]
    for pid in pids:
        try:
            call("ptrace", seize, pid, 0, 0)
            call("ptrace", detach, pid, 0, 0)
            return f"of {pid}"
        except OSError as error:
            last = error
    raise last


@each("A36", "reach into memory by", ["process_vm_readv", "process_vm_writev"])
def reach_into(name):
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_size_t * 2)(0x400000, 8)
    on_others(lambda pid: call(name, pid, local, 1, remote, 1, 0), WITH_THE_FIRST)


@attempt("A36", "open memory for writing")
def open_memory():
    on_others(lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)), WITH_THE_FIRST)


@attempt("A36", "take a descriptor of another process")
def take_descriptor():
    on_others(lambda pid: call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0), WITH_THE_FIRST)


@attempt("A36", "advise on the memory of another process")
def advise():
    on_others(lambda pid: call("process_madvise", call("pidfd_open", pid, 0), (ctypes.c_size_t * 2)(0, 4096), 1, 21, 0), WITH_THE_FIRST)


# --- terminals

def push(descriptor):
    fcntl.ioctl(descriptor, termios.TIOCSTI, b"x")


@each("A37", "type into", ["0", "1", "2", "/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1"])
def type_into(where):
    descriptor = int(where) if where.isdigit() else os.open(where, os.O_RDWR | os.O_NOCTTY)
    push(descriptor)


@attempt("A37", "type into a terminal of one's own, also with odd high bits")
def type_into_own():
    master, slave = os.openpty()
    requests = (termios.TIOCSTI, 0x541C, termios.TIOCSTI | 1 << 32)
    done = [hex(request) for request in requests if LIBC.ioctl(slave, ctypes.c_ulong(request), b"\3") == 0]
    failure = ctypes.get_errno()
    os.close(master)
    os.close(slave)
    if not done:
        raise OSError(failure, "")
    return str(done)


@attempt("A37", "write to a terminal outside")
def write_to_terminal():
    write(FACTS["terminal"], os.O_WRONLY | os.O_NOCTTY)


@attempt("A37", "read from a terminal outside")
def read_from_terminal():
    os.close(os.open(FACTS["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))


# --- namespaces, mounts, and dangerous system calls

@each("A38", "unshare", ["0x10000000", "0x10020000", "0x20000", "0x20000000", "0x40000000", "0x8000000", "0x4000000", "0x2000000"])
def unshare(flags):
    call("unshare", int(flags, 16))


def forked(function):
    """Tries in a child, since a success would change this process."""
    read, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os.write(writing, b"worked")
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        except ValueError:
            os.write(writing, str(errno.EPERM).encode())
        except Absent:
            os.write(writing, b"absent")
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(read, 100)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise OSError(errno.EINTR, f"killed by {os.WTERMSIG(status)}")
    if said == b"absent":
        raise Absent()
    if said.isdigit():
        raise OSError(int(said), "")
    return said.decode()


@each("A38", "clone", [f"{NEWUSER:#x}", f"{NEWUSER | NEWNS:#x}", f"{NEWPID:#x}", f"{NEWNET:#x}", f"{0x80 | NEWUSER << 32 | NEWUSER:#x}"])
def clone(flags):
    def attack():
        if call("clone", int(flags, 16) | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            os._exit(0)
    return forked(attack)


@attempt("A38", "clone3")
def clone3():
    def attack():
        arguments = (ctypes.c_uint64 * 8)(NEWUSER | NEWNS, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        if call("clone3", arguments, 64) == 0:
            os._exit(0)
    return forked(attack)


@attempt("A38", "mount and remount")
def mount():
    for arguments in ((b"tmpfs", b"/tmp", b"tmpfs", 0, None), (None, b"/", None, 32, None), (None, b"/usr", None, 32 | 4096, None),
                      (b"/", b"/tmp", None, 4096, None), (None, b"/proc", None, 32, None), (None, b"/sys", None, 32, None)):
        try:
            call("mount", *arguments)
            return str(arguments)
        except OSError as error:
            last = error
    raise last


@each("A38", "call", ["umount2", "pivot_root", "chroot", "fsopen", "open_tree", "mount_setattr"])
def mount_call(name):
    arguments = {
        "umount2": (b"/proc", 2), "pivot_root": (b".", b"."), "chroot": (b"/",), "fsopen": (b"tmpfs", 0),
        "open_tree": (-100, b"/", 1), "mount_setattr": (-100, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32),
    }[name]
    return forked(lambda: call(name, *arguments))


@each("A38", "enter the namespace", ["mnt", "user", "net", "pid"])
def enter(name):
    for pid in [*CHAIN, 1]:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
            return forked(lambda: call("setns", descriptor, 0))
        except OSError as error:
            last = error
    raise last


@each("A39", "call", ["io_uring_setup", "userfaultfd", "bpf", "perf_event_open", "keyctl", "add_key", "open_by_handle_at", "kcmp",
                      "syslog", "settimeofday", "swapon", "sethostname", "process_mrelease"])
def kernel_call(name):
    arguments = {
        "io_uring_setup": (1, bytes(120)), "userfaultfd": (0,), "bpf": (0, struct.pack("IIII", 2, 4, 4, 1) + bytes(56), 72),
        "perf_event_open": (struct.pack("II", 1, 112) + bytes(104), 0, -1, -1, 0), "keyctl": (0, -4, 1),
        "add_key": (b"user", b"hostile", b"x", 1, -3), "open_by_handle_at": (-100, struct.pack("Ii", 8, 1) + bytes(8), 0),
        "kcmp": (os.getpid(), os.getpid(), 0, 0, 0), "syslog": (10, None, 0), "settimeofday": (None, bytes(8)),
        "swapon": (b"/x", 0), "sethostname": (os.uname().nodename.encode(), len(os.uname().nodename)), "process_mrelease": (-1, 0),
    }[name]
    return str(call(name, *arguments))


def machine_code(code):
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(area)))()


@attempt("A39", "call as a program of 32 bits")
def call_of_32_bits():
    if not X86:
        raise Absent()
    # mov eax, 20; int 0x80; cdqe; ret
    def attack():
        if machine_code(bytes.fromhex("b814000000cd804898c3")) < 0:
            raise OSError(errno.ENOSYS, "")
    return forked(attack)


@attempt("A39", "call by a number of x32")
def call_of_x32():
    if not X86:
        raise Absent()
    if LIBC.syscall(ctypes.c_long(0x40000000 + 272), ctypes.c_long(NEWUSER)) < 0:
        raise OSError(ctypes.get_errno(), "")


@attempt("A39", "memory and messages that all share")
def shared_memory():
    """In a private namespace these are our own."""
    call("shmget", 0x7E57, 4096, 0o1600)
    return "shared" if FACTS["mode"] == "reduced" else forked(lambda: call("open_by_handle_at", -1, bytes(16), 0))


# --- privileges

@attempt("A40", "capabilities or new privileges")
def privileges():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    held = {name: status[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if int(status[name], 16)}
    if status["NoNewPrivs"].strip() != "1":
        held["NoNewPrivs"] = status["NoNewPrivs"]
    if status["Seccomp"].strip() != "2":
        held["Seccomp"] = status["Seccomp"]
    if not held:
        raise OSError(errno.EPERM, "")
    return str(held)


@attempt("A40", "sudo")
def sudo():
    try:
        if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode:
            raise OSError(errno.EPERM, "")
    except FileNotFoundError:
        raise Absent()


@attempt("A40", "a program with the bit of another user")
def setuid_program():
    if not FACTS["setuid"] or os.getuid() == 0:
        raise Absent()
    said = subprocess.run([FACTS["setuid"], "-u"], capture_output=True, text=True)
    if said.stdout.strip() != "0":
        raise OSError(errno.EPERM, said.stdout + said.stderr)


@attempt("A40", "such a program of one's own making")
def make_setuid():
    with open("setuid", "wb") as file:
        file.write(b"#!/bin/sh\n")
    refused = 0
    folder = os.open(".", os.O_RDONLY)
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    for change in (lambda: os.chmod("setuid", 0o4755), lambda: os.chmod("setuid", 0o4755, dir_fd=folder),
                   lambda: call("fchmodat2", -100, b"setuid", 0o4755, 0), lambda: call("openat2", -100, b"setuid-4", how, 24),
                   lambda: os.close(os.open("setuid-2", os.O_CREAT | os.O_WRONLY, 0o4755)),
                   lambda: os.mknod("setuid-3", 0o104755)):
        try:
            change()
        except OSError as error:
            refused, last = refused + 1, error
    os.close(folder)
    names = [name for name in os.listdir() if name.startswith("setuid")]
    bits = [name for name in names if os.stat(name).st_mode & 0o4000]
    for name in names:
        os.unlink(name)
    if not bits:
        raise last if refused else OSError(errno.EPERM, "")
    return str(bits)


@each("A40", "make a device", ["c 1 1", "b 8 0", "c 1 3"])
def make_device(words):
    import stat
    kind, major, minor = words.split()
    os.mknod("device", 0o600 | (stat.S_IFCHR if kind == "c" else stat.S_IFBLK), os.makedev(int(major), int(minor)))
    os.unlink("device")


# --- shared directories, and files of the run

@each("A41", "leave something in", ["/tmp", "/var/tmp", "/dev/shm", "/run", f"/run/user/{os.getuid()}", "/dev/mqueue", "/var/lock"])
def leave_in(folder):
    path = f"{folder}/{FACTS['marker']}-left"
    write(path)
    if is_ours(path):
        raise OSError(errno.ENOENT, "only we see it")


@each("A42", "lock", [".orchestrator.lock", "state.json", "specs/spec.yaml"])
def lock(name):
    held = os.open(f"{ROOT}/{name}", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    globals()["HELD"] = held


@each("A56", "rewrite", ["state.json", "logs/x.log", "specs/spec.yaml", "workspace2", "env/x.py", ".orchestrator.lock"])
def rewrite(name):
    write(f"{ROOT}/{name}")


@attempt("A43", "move the workspace away")
def move_workspace():
    if FACTS["workspace"] != os.getcwd():
        return f"in {os.getcwd()}"
    for change in (lambda: os.rename(FACTS["workspace"], ROOT + "/moved"), lambda: os.rmdir(FACTS["workspace"]),
                   lambda: os.symlink("/", FACTS["workspace"] + "2")):
        try:
            change()
            return "gone"
        except OSError as error:
            last = error
    raise last


# --- beyond the table

@attempt("beyond", "link what is opened by name into the workspace")
def link_opened():
    os.link(f"{OPEN}/file", "linked-opened")


@each("beyond", "write to what is opened by name", ["file", "new", "fifo"])
def write_opened(name):
    write(f"{OPEN}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)


@attempt("beyond", "talk to a socket in what is opened by name")
def talk_opened():
    connect(socket.AF_UNIX, f"{OPEN}/socket")


@each("beyond", "write to", ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces",
                             "/proc/sys/kernel/pid_max", "/proc/sys/kernel/hostname", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
                             "/sys/fs/cgroup/cgroup.procs", "/proc/self/uid_map", "/proc/1/oom_score_adj", "/proc/1/comm", "/dev/mem", "/dev/kmsg",
                             "/dev/vda", "/dev/sda"])
def open_for_writing(path):
    os.close(os.open(path, os.O_WRONLY))


@attempt("beyond", "make a group of processes")
def make_group():
    os.mkdir(f"/sys/fs/cgroup/{FACTS['marker']}")
    os.rmdir(f"/sys/fs/cgroup/{FACTS['marker']}")


@attempt("beyond", "end the first process")
def end_the_first():
    if open("/proc/1/comm").read().strip() != "orchestrator":
        raise Absent()
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV, signal.SIGABRT):
        try:
            os.kill(1, number)
        except OSError:
            pass
    # A process that reads this is alive, and so is the first one.
    raise OSError(errno.EPERM, "")


@attempt("beyond", "dump memory")
def dump_memory():
    def attack():
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    return forked(attack)


@attempt("A49", "a file of a tebibyte")
def sparse():
    try:
        with open("sparse", "wb") as file:
            file.truncate(1 << 40)
    finally:
        os.unlink("sparse")


@attempt("A47", "leave children behind")
def leave_children():
    """Three daemons that ignore signals, hold both streams, and are replaced by a child every 50 ms."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            script = ("import os, time, sys\nend = time.monotonic() + 60\nwhile time.monotonic() < end:\n time.sleep(0.05)\n"
                      " if os.fork(): os._exit(0)\n os.setsid()\n")
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", script, FACTS["marker"]])
    raise OSError(errno.ECHILD, "")


# --- what ordinary programs need

@attempt("ordinary", "loopback by TCP")
def own_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect(socket.AF_INET, server.getsockname())


@attempt("ordinary", "loopback by UDP")
def own_datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.sendto(b"x", one.getsockname())
        one.settimeout(5)
        one.recv(1)


@attempt("ordinary", "sockets with a name")
def own_sockets():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("own.sock")
        server.listen()
        connect(socket.AF_UNIX, "own.sock")
    os.unlink("own.sock")


@attempt("ordinary", "shared memory")
def own_shared_memory():
    write(f"/dev/shm/{FACTS['marker']}-own")
    os.unlink(f"/dev/shm/{FACTS['marker']}-own")


@attempt("ordinary", "a terminal of one's own")
def own_terminal():
    master, slave = os.openpty()
    os.write(slave, b"x")
    os.read(master, 1)
    os.close(master)
    os.close(slave)


@attempt("ordinary", "tracing a child")
def own_child():
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        call("ptrace", 0x4206, pid, 0, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@attempt("ordinary", "a pair of sockets, a temporary file, a file in the home")
def own_places():
    import tempfile
    socket.socketpair()
    tempfile.TemporaryFile().close()
    write(os.path.expanduser("~/x"))


@attempt("ordinary", "modes and links in the workspace")
def own_files():
    write("own-file")
    os.chmod("own-file", 0o755)
    os.utime("own-file", (1, 1))
    os.link("own-file", "own-link")
    os.rename("own-link", "own-file")
    os.unlink("own-file")


def outcome(function):
    try:
        said = function()
        return f"worked{': ' + said if said else ''}"
    except Absent:
        return "absent"
    except OSError as error:
        return f"refused {errno.errorcode.get(error.errno, error.errno)} {error.strerror or ''}".strip()


def main():
    signal.alarm(120)
    results = [(row, name, outcome(function)) for row, name, function in ATTEMPTS]
    with open(FACTS["results"], "w") as file:
        json.dump(results, file, indent=0)


main()
