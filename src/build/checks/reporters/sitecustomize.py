# Reports the tests of pytest and unittest to the orchestrator, on a socket that the check was started with.
#
# The interpreter imports this before anything of the workspace. It uses no module but those that are loaded by then:
# the workspace is on the path. What runs afterwards finds sys.path and its environment without it. A runner that cannot
# be watched runs all the same.
import sys


def _orchestrator():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    number = os.environ.get("TEST_REPORT_FD", "")
    if not number.isdigit():
        return
    state = {"fd": int(number), "token": None, "pid": os.getpid(), "session": None}

    def command_line():
        try:
            with open("/proc/self/cmdline", "rb") as file:
                return file.read().decode("utf-8", "replace").split("\0")[1:-1]
        except OSError:
            return list(getattr(sys, "orig_argv", [""]))[1:]

    def runner_of(words):
        # A script that is pytest, or a module by -m, alone or behind other letters.
        for index, word in enumerate(words):
            following = words[index + 1] if index + 1 < len(words) else ""
            if not word.startswith("-"):
                name = os.path.basename(word)
                return "pytest" if name.startswith("pytest") or name == "py.test" else None
            letters = word[1:]
            if "m" in letters and not word.startswith("--") and not letters.startswith(("W", "X", "c")):
                module = letters[letters.index("m") + 1:] or following
                if module == "coverage" and "-m" in words[index + 2:]:
                    return runner_of(words[words.index("-m", index + 2):])
                return {"pytest": "pytest", "py.test": "pytest", "unittest": "unittest"}.get(module)
            if word in ("-W", "-X"):
                rest = words[index + 2:]
                return runner_of(rest) if rest else None
        return None

    def hide():
        # What this interpreter starts is no part of the report.
        os.environ.pop("TEST_REPORT_FD", None)
        entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != here]
        if any(entries):
            os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        else:
            os.environ.pop("PYTHONPATH", None)

    if sys.version_info < (3, 4):
        return hide()

    def is_ours(fd):
        try:
            found = os.fstat(fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == state["identity"]

    def take_channel():
        # Out of the way of what writes to, or closes, every small number.
        fd = state["fd"]
        hide()
        try:
            found = os.fstat(fd)
            state["identity"] = (found.st_dev, found.st_ino)
            os.write(fd, b"hello")
            state["token"] = os.read(fd, 64)
            try:
                os.fstat(987)
                os.set_inheritable(fd, False)
            except OSError:
                try:
                    os.dup2(fd, 987, False)
                    os.close(fd)
                    state["fd"] = 987
                except OSError:
                    os.set_inheritable(fd, False)
        except OSError:
            state["token"] = b""
        return bool(state["token"])

    def say(text):
        # A fork has nothing to say, and a number that was closed may be somebody else's by now.
        if not state["token"] or os.getpid() != state["pid"] or not is_ours(state["fd"]):
            return
        record = state["token"] + b" " + text.encode("utf-8", "backslashreplace")[:4000]
        try:
            os.write(state["fd"], record)
        except OSError:
            pass

    def begin(runner):
        # One at a time: a runner inside a test is part of that test.
        if state["session"] is not None or os.getpid() != state["pid"]:
            return None
        if state["token"] is None and not take_channel():
            return None
        state["session"] = {"runner": runner, "running": False}
        say("begin " + runner)
        return state["session"]

    def end(session, executed, failed, skipped, problem=None):
        if session is None or state["session"] is not session:
            return
        state["session"] = None
        word = "null" if problem is None else '"' + "".join(c for c in problem if c.isalnum() or c in " .,:_-()")[:300] + '"'
        summary = '{"executed":%d,"failed":%d,"skipped":%d}' % (executed, failed, skipped)
        say('end {"summary":%s,"problem":%s}' % (summary, word))

    class Plugin(object):
        def __init__(self, session):
            self.session = session
            self.config = None
            self.problem = None
            self.counts = {"passed": 0, "failed": 0, "error": 0, "skipped": 0}

        def pytest_configure(self, config):
            self.config = config

        def pytest_runtest_logreport(self, report):
            status = self.config.hook.pytest_report_teststatus(report=report, config=self.config)
            if status:
                category = status[0]
            else:
                category = report.outcome if report.when == "call" or not report.passed else ""
            outcome = {"xfailed": "passed", "xpassed": "passed"}.get(category, category)
            if outcome in self.counts:
                self.counts[outcome] += 1
                say("test %s %s" % (outcome, report.nodeid))

        def pytest_collectreport(self, report):
            if report.failed:
                self.counts["error"] += 1
                say("test error %s" % report.nodeid)
            elif report.skipped:
                self.counts["skipped"] += 1
                say("test skipped %s" % report.nodeid)

        def pytest_keyboard_interrupt(self, excinfo):
            self.problem = "%s: %s" % (excinfo.type.__name__, excinfo.value)

        def pytest_unconfigure(self, config):
            counts = self.counts
            failed = counts["failed"] + counts["error"]
            end(self.session, counts["passed"] + counts["failed"], failed, counts["skipped"], self.problem)

    def watch_pytest(module):
        manager = module.PytestPluginManager
        initialize = manager.__init__

        def __init__(self, *args, **options):
            initialize(self, *args, **options)
            session = begin("pytest")
            if session is not None:
                self.register(Plugin(session))

        manager.__init__ = __init__

    def finish_unittest(session, result):
        if session is None or not hasattr(result, "testsRun"):
            return
        failed = sum(len(getattr(result, name, ())) for name in ("failures", "errors", "unexpectedSuccesses"))
        skipped = len(getattr(result, "skipped", ()))
        problem = "it was told to stop" if getattr(result, "shouldStop", False) and not failed else None
        end(session, max(result.testsRun - skipped, 0), failed, skipped, problem)

    def watch_program(module):
        program = module.TestProgram
        initialize = program.__init__

        def __init__(self, *args, **options):
            session = begin("unittest")
            try:
                initialize(self, *args, **options)
            finally:
                finish_unittest(session, getattr(self, "result", None))

        program.__init__ = __init__

    def watch_result(result):
        current = {"name": None, "outcome": None}

        def name_of(test):
            try:
                return test.id()
            except Exception:
                return str(test)

        def note(outcome):
            def noted(test):
                if current["name"] is None:
                    say("test %s %s" % ("skipped" if outcome == "skipped" else "error", name_of(test)))
                elif current["outcome"] != "failed":
                    current["outcome"] = outcome
            return noted

        def around(name, before):
            method = getattr(result, name, None)
            if method is None:
                return

            def called(test, *args, **options):
                before(test, *args)
                return method(test, *args, **options)

            setattr(result, name, called)

        def start(test, *_):
            current["name"], current["outcome"] = name_of(test), "passed"

        def stop(test, *_):
            if current["name"] is not None:
                say("test %s %s" % (current["outcome"], current["name"]))
            current["name"] = None

        def subtest(test, inner=None, error=None, *_):
            if error is not None:
                note("failed")(test)

        around("startTest", start)
        around("stopTest", stop)
        around("addSubTest", subtest)
        around("addSkip", lambda test, *_: note("skipped")(test))
        for name in ("addError", "addFailure", "addUnexpectedSuccess"):
            around(name, lambda test, *_: note("failed")(test))

    def watch_runner(module):
        runner = module.TextTestRunner
        run_tests = runner.run

        def run(self, test):
            session = state["session"] if state["session"] is not None else begin("unittest")
            if session is None or session["runner"] != "unittest" or session["running"]:
                return run_tests(self, test)
            session["running"] = True
            make = self._makeResult

            def make_result():
                result = make()
                watch_result(result)
                return result

            self._makeResult = make_result
            try:
                result = run_tests(self, test)
            finally:
                self._makeResult = make
            finish_unittest(session, result)
            return result

        runner.run = run

    watched = {"_pytest.config": watch_pytest, "unittest.main": watch_program, "unittest.runner": watch_runner}

    class Finder(object):
        def find_spec(self, name, path=None, target=None):
            watch = watched.pop(name, None)
            if watch is None:
                return None
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find is not None and finder is not self else None
                if spec is None or spec.loader is None:
                    continue
                load = spec.loader.exec_module

                def exec_module(module):
                    load(module)
                    try:
                        watch(module)
                    except Exception:
                        say("unwatched " + {"_pytest.config": "pytest"}.get(name, "unittest"))

                spec.loader.exec_module = exec_module
                return spec
            return None

    sys.meta_path.insert(0, Finder())
    runner = runner_of(command_line())
    if runner is not None and take_channel():
        say("start " + runner)


try:
    _orchestrator()
except Exception:
    pass
del _orchestrator
# A sitecustomize of the user's own is found behind us.
_ours = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    sys.modules["sitecustomize"] = _ours
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
