"""Environments that wrap an interactive program."""
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import termios
import time

from orchestrator.types import CommandResponse, CommandText, ScreenSection

START_SECONDS = 30
ROWS, COLUMNS = 32767, 200
LINE_LIMIT = 4000           # a terminal line in canonical mode holds 4,095 bytes
KEPT = 12_000_000           # more than an answer can have


class InteractiveEnvironment:
    """Wraps a program that prints a prompt when it is ready for the next line.

    A subclass defines `command` (split like in a shell, run without one), `prompt` (a regular expression that matches
    at the end of the output) and `description`.
    """

    command: str = None
    prompt: str = None
    description: str = "Interactive program"

    def __init__(self):
        self._pid = None
        self._terminal = None
        self._used = False
        self._buffer = bytearray()
        self._dropped = 0
        self._collects = True

    def handle_command(self, cmd: CommandText) -> CommandResponse:
        if self._pid is None:
            problem = self._start()
            if problem is not None:
                return CommandResponse(f"Failed to start {self.command}: {problem}", success=False)
        out = []
        for line in cmd.value.split("\n"):
            self._send(line)
            text, at_prompt = self._read_to_prompt(None)
            out.append(text)
            if not at_prompt:
                return self._ended("".join(out))
        return CommandResponse("".join(out), success=True)

    def get_screen(self) -> ScreenSection:
        if not self._used:
            return ScreenSection(content=f"{self.description}")
        status = "Running" if self._pid is not None else "Stopped"
        return ScreenSection(content=f"{self.description}\nStatus: {status}")

    def shutdown(self) -> None:
        if self._pid is not None:
            self._close(signal.SIGHUP)

    def _start(self):
        """Starts the program and waits for its first prompt; returns an error, or None."""
        try:
            words = shlex.split(self.command)
            pattern = re.compile(self.prompt)
        except (ValueError, TypeError, re.error) as error:
            return str(error)
        self._pattern = pattern
        if not words:
            return "the command is empty"
        report, errors = os.pipe()
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                modes = termios.tcgetattr(0)
                modes[3] &= ~(termios.ECHO | termios.ECHONL)
                termios.tcsetattr(0, termios.TCSANOW, modes)
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
                for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                os.execvp(words[0], words)
            except BaseException as error:
                os.write(errors, str(error).encode("utf-8", "replace"))
            os._exit(127)
        os.close(errors)
        with os.fdopen(report, "rb") as pipe:
            problem = pipe.read().decode("utf-8", "replace")
        self._pid, self._terminal, self._buffer = pid, terminal, bytearray()
        self._collects = True
        if problem:
            self._close(signal.SIGKILL)
            return problem
        text, at_prompt = self._read_to_prompt(time.monotonic() + START_SECONDS)
        if not at_prompt:
            self._close(signal.SIGKILL)
            return "no prompt; it printed:\n" + text
        self._used = True
        return None

    def _send(self, line):
        """Writes a line, in pieces that fit the terminal."""
        data = line.encode("utf-8", "surrogateescape") + b"\n"
        self._collects_lines(len(data) <= LINE_LIMIT)
        while data:
            readable, writable, _ = select.select([self._terminal], [self._terminal], [])
            if readable and not self._take():
                break
            if writable:
                data = data[os.write(self._terminal, data[:LINE_LIMIT]):]

    def _collects_lines(self, wanted):
        """Switches canonical mode: a line longer than its limit passes only without it. A program that has switched it
        off itself is left alone."""
        if wanted == self._collects:
            return
        try:
            modes = termios.tcgetattr(self._terminal)
            modes[3] = modes[3] | termios.ICANON if wanted else modes[3] & ~termios.ICANON
            termios.tcsetattr(self._terminal, termios.TCSANOW, modes)
            self._collects = wanted
        except (OSError, termios.error):
            pass

    def _take(self):
        """Reads available output; False at EOF."""
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:
            return False
        self._buffer += data
        if len(self._buffer) > 2 * KEPT:
            cut = len(self._buffer) - KEPT
            del self._buffer[KEPT // 2:KEPT // 2 + cut]
            self._dropped += cut
        return bool(data)

    def _read_to_prompt(self, deadline):
        """Reads until the output ends with the prompt; returns the text before it, and whether the prompt was found."""
        while True:
            try:
                tail = bytes(self._buffer[-4096:]).decode("utf-8", "replace")
                found = None
                for found in self._pattern.finditer(tail):
                    if found.end() == len(tail) and found.group():
                        break
                    found = None
                if found is not None and not self._more_is_coming():
                    prompt = len(tail[found.start():].encode("utf-8", "replace"))
                    return self._text(len(self._buffer) - prompt), True
                left = None if deadline is None else max(0, deadline - time.monotonic())
                ready, _, _ = select.select([self._terminal], [], [], left)
                if not ready or not self._take():
                    return self._text(len(self._buffer)), False
            except KeyboardInterrupt:
                os.write(self._terminal, b"\x03")

    def _more_is_coming(self):
        return bool(select.select([self._terminal], [], [], 0)[0])

    def _text(self, end):
        text = bytes(self._buffer[:end]).decode("utf-8", "replace")
        self._buffer.clear()
        if self._dropped:
            text += f"\n[{self._dropped} bytes dropped]\n"
            self._dropped = 0
        return text.replace("\r\n", "\n")

    def _ended(self, text):
        """The answer after the end of the program; the next command starts it again."""
        status = self._close(signal.SIGKILL)
        if text and not text.endswith("\n"):
            text += "\n"
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        text += f"[the program has ended ({how}); the next command starts it again]"
        return CommandResponse(text, success=status == 0)

    def _close(self, number):
        """Ends the program and returns its status; that of a signal is negative."""
        pid, self._pid = self._pid, None
        status = None
        end = time.monotonic() + 1
        while status is None:
            done, raw = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(raw)
                break
            if time.monotonic() > end - 0.95:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
                number = signal.SIGKILL
            time.sleep(0.01)
        os.close(self._terminal)
        return status
