"""Run a test file of torch's own with backprobe at work in it, and say which tests end differently.

    python bench/autograd_suite.py test_autograd.py                      # all modes
    python bench/autograd_suite.py test_autograd.py --mode trace step -k hook

FILE is a unittest file of torch's test folder (``pytorch/test/test_autograd.py``, ``test/autograd/test_functional.py``)
of the version that is installed. Each mode runs all its tests in a process of its own:

    plain     without backprobe. Run twice: a test that does not end the same both times is flaky and left out.
    trace     the whole file inside ``backprobe.trace()``: every forward and backward call is watched
    explain   the same at the level that looks closest
    step      every ``backward``, ``autograd.backward`` and ``autograd.grad`` is a ``backprobe.debug`` that is stepped
              to its end, a stop before and after each node, into nested calls too
    look      the same, and at each stop the gradients, saved tensors and the way from the loss are read
    attached  a ``breakpoint_backward`` that stops before and after every node, in the engine's own thread

A process that crashes, or that stands still for --patience seconds, counts against the test that ran then; the rest of
the file goes on in a new process. The line under each mode says how much backprobe really did: backward calls, nodes or
stops. A fault inside backprobe that makes it stop watching is shown too, and the next test gets a new session.

Ends with 1 where a test ends differently.
"""

from __future__ import annotations

import argparse
import contextlib
import contextvars
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODES = ("plain", "trace", "explain", "step", "look", "attached")


class Sampled:
    """One mode over one file: test -> how it ended, and what it said when it failed."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.said: dict[str, str] = {}
        self.did: Counter[str] = Counter()
        self.faults: list[str] = []

    def take(self, line: dict[str, Any]) -> None:
        if "test" in line:
            self.ended[line["test"]], self.said[line["test"]] = line["ended"], line["said"]
        if "fault" in line:
            self.faults.append(f"{line['fault']} (in {line['in']})")
        self.did.update(line.get("did", {}))


def run_mode(file: str, mode: str, pattern: str, patience: float) -> Sampled:
    """All tests of `file` under `mode`, in as many processes as it takes."""
    sampled = Sampled()
    while True:
        with tempfile.TemporaryDirectory() as folder:
            report, skip = Path(folder, "report"), Path(folder, "skip")
            report.touch()
            skip.write_text(json.dumps(list(sampled.ended)))
            command = [sys.executable, __file__, file, "-k", pattern, "--child", mode]
            with Path(folder, "output").open("w") as output:
                child = subprocess.Popen([*command, str(report), str(skip)], stdout=output, stderr=subprocess.STDOUT)
                why = _wait(child, report, patience)
            running, over = None, False
            for text in report.read_text().splitlines():
                line = json.loads(text)
                sampled.take(line)
                over = over or "over" in line
                running = line.get("begin", None if "test" in line else running)
            if over:
                return sampled
            tail = Path(folder, "output").read_text(errors="replace")[-2000:]
            if running is None:
                raise SystemExit(f"{mode}: the process ended ({why}) between tests:\n{tail}")
            sampled.ended[running], sampled.said[running] = "crashed", f"{why}\n{tail}"


def _wait(child: subprocess.Popen[bytes], report: Path, patience: float) -> str:
    """Wait for the end; kill it where no test begins or ends for long."""
    size, since = 0, time.monotonic()
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        now = report.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > (patience if size else 300 + patience):  # imports come first
            child.kill()
            child.wait()
            return f"stood still for {patience:.0f} s"
    return f"exit code {child.returncode}"


# In the process of a mode


class Recorder(unittest.TestResult):
    """Writes down each test as it ends, so that a crash loses none."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._write = write
        self._ended, self._said = "passed", ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._ended, self._said = "passed", ""
        self._write({"begin": test.id()})

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write({"test": test.id(), "ended": self._ended, "said": self._said})

    def addError(self, test: Any, err: Any) -> None:
        self._ended, self._said = "error", "".join(traceback.format_exception(*err))

    def addFailure(self, test: Any, err: Any) -> None:
        self._ended, self._said = "failed", "".join(traceback.format_exception(*err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._ended, self._said = "failed", "".join(traceback.format_exception(*err))

    def addSkip(self, test: Any, reason: str) -> None:
        self._ended = "skipped"

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._ended = "failed as expected"

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._ended = "passed unexpectedly"


class Mode:
    """What backprobe does around the tests of a file."""

    def __init__(self) -> None:
        self.did: Counter[str] = Counter()

    def start(self) -> None: ...
    def stop(self) -> None: ...

    def fault(self) -> BaseException | None:
        """What failed in backprobe since ``start``, if anything."""
        return None


class Traced(Mode):
    """A session over all tests."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._level = level
        self._trace: Any = None

    def start(self) -> None:
        import backprobe

        self._trace = backprobe.trace(level=self._level)
        self._trace.__enter__()

    def stop(self) -> None:
        session = self._trace.session
        self.did["backward calls"] += session.calls
        self.did["nodes"] += session._cost.nodes
        self._trace.__exit__(None, None, None)
        for unseen in self._trace.facts.unseen:
            if unseen.what != "internal error":
                self.did[f"unseen: {unseen.what}"] += unseen.count

    def fault(self) -> BaseException | None:
        error: BaseException | None = self._trace.session.error
        return error


class Attached(Mode):
    """Breakpoints on every node of every backward call."""

    def __init__(self) -> None:
        super().__init__()
        self._points: Any = None

    def start(self) -> None:
        import backprobe

        self._points = backprobe.breakpoint_backward(node="*", phase="both", action=self._stop)

    def _stop(self, stop: Any) -> None:
        self.did["stops"] += 1

    def stop(self) -> None:
        self.did["backward calls"] += self._points._stops.calls
        self._points.remove()

    def fault(self) -> BaseException | None:
        error: BaseException | None = self._points._session.error
        return error


class Stepped(Mode):
    """Every call that runs a backward, from Python code of any thread, is stepped to its end."""

    def __init__(self, look: bool) -> None:
        super().__init__()
        self._look = look
        #: Whether we are inside a call that is stepped already: ``into`` sees what it calls itself.
        self._inside = contextvars.ContextVar("inside", default=False)
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        import torch

        for holder, name, call in (
            (torch.Tensor, "backward", "Tensor.backward"),
            (torch.autograd, "backward", "autograd.backward"),
            (torch.autograd, "grad", "grad"),
        ):
            own = getattr(holder, name)
            stepped = self._stepped(own, call)
            setattr(holder, name, stepped)
            compiled = torch.jit._builtins._find_builtin(own)
            if compiled is not None:  # torch.jit.script knows it by its identity
                torch.jit._builtins._register_builtin(stepped, compiled)
            self._undo.append(lambda holder=holder, name=name, own=own: setattr(holder, name, own))  # type: ignore[misc]

    def stop(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _stepped(self, own: Callable[..., Any], call: str) -> Callable[..., Any]:
        import functools

        import torch

        from backprobe.errors import BackprobeError

        @functools.wraps(own)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            # A thread of the engine's own pool runs a call that is stepped already, too.
            pooled = isinstance(threading.current_thread(), threading._DummyThread)
            if self._inside.get() or pooled or torch.compiler.is_compiling():
                return own(*args, **kwargs)
            token = self._inside.set(True)
            try:
                return self._run(call, args, kwargs)
            except BackprobeError as error:
                if "inside a torch.func transform" not in str(error):
                    raise
            finally:
                self._inside.reset(token)
            self.did["refused: torch.func"] += 1
            return own(*args, **kwargs)

        return stepped

    def _run(self, call: str, args: Any, kwargs: Any) -> Any:
        import backprobe

        if not args:  # all by name
            kwargs = dict(kwargs)
            for name in ("tensors", "outputs", "self"):
                if name in kwargs:
                    args = (kwargs.pop(name),)
                    break
        self.did["backward calls"] += 1
        debugger = backprobe.debug(*args, call=call, **kwargs)
        while not debugger.done:
            self.did["stops"] += 1
            if self._look:
                self._read(debugger)
            debugger.step("into")
        return debugger.result

    def _read(self, debugger: Any) -> None:
        stop = debugger.stop
        found = [str(stop.node), repr(stop), debugger.where(), stop.grad_outputs]
        if stop.phase == "after":
            found.append(stop.grad_inputs)
        try:
            found += [stop.saved, {name: repr(value) for name, value in stop.saved.items()}]
        except RuntimeError:
            self.did["saved tensors that could not be read"] += 1
        self.did["things read"] += len(found)


def mode_of(name: str) -> Mode:
    if name in ("trace", "explain"):
        return Traced(name)
    if name in ("step", "look"):
        return Stepped(name == "look")
    return Attached() if name == "attached" else Mode()


def child(file: str, name: str, pattern: str, report: str, skip: str) -> None:
    """Run the tests of `file` but for those in `skip`, and write `report` line by line."""
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    sys.setrecursionlimit(2000)  # what stands between two nested calls takes frames too
    with Path(report).open("w") as out:

        def write(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        mode = mode_of(name)
        mode.start()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        done = set(json.loads(Path(skip).read_text()))
        recorder = Recorder(write)
        for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if test.id() in done or pattern not in test.id():
                continue
            test(recorder)
            error = mode.fault()
            if error is not None:
                text = "".join(traceback.format_exception(error))
                write({"fault": text, "in": test.id()})
                mode.stop()
                mode.start()
        mode.stop()
        write({"over": True, "did": dict(mode.did)})
    os._exit(0)


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _tests(one)
        else:
            yield one


# The table


def compare(plain: Sampled, again: Sampled, other: Sampled) -> dict[str, tuple[str, str]]:
    """Tests that end differently: how without and with. Flaky ones are left out."""
    steady = {test for test, ended in plain.ended.items() if again.ended.get(test) == ended}
    return {
        test: (plain.ended[test], other.ended.get(test, "missing"))
        for test in plain.ended
        if test in steady and other.ended.get(test, "missing") != plain.ended[test]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="default: all")
    parser.add_argument("-k", dest="pattern", default="", help="only tests with this in their name")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for one test, default 300")
    parser.add_argument("-v", dest="verbose", action="store_true", help="show what differing tests said")
    parser.add_argument("--child", nargs=3, metavar=("MODE", "REPORT", "SKIP"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.file, given.child[0], given.pattern, given.child[1], given.child[2])
    runs = [run_mode(given.file, "plain", given.pattern, given.patience) for _ in range(2)]
    plain, again = runs
    flaky = sorted(t for t, ended in plain.ended.items() if again.ended.get(t) != ended)
    text = io.StringIO()
    print(f"{'mode':10}{'tests':>7}{'passed':>8}{'skipped':>9}{'other':>7}{'differ':>8}", file=text)
    differ: dict[str, dict[str, tuple[str, str]]] = {}
    for mode in ["plain", *(m for m in given.mode if m != "plain")]:
        found = plain if mode == "plain" else run_mode(given.file, mode, given.pattern, given.patience)
        differ[mode] = compare(plain, again, found)
        counts = Counter(found.ended.values())
        others = len(found.ended) - counts["passed"] - counts["skipped"]
        row = f"{mode:10}{len(found.ended):7}{counts['passed']:8}{counts['skipped']:9}{others:7}{len(differ[mode]):8}"
        print(row, file=text)
        did = ", ".join(f"{number:,} {what}" for what, number in sorted(found.did.items()))
        print(f"{mode}: {counts['passed']} passed, {len(differ[mode])} differ{'; ' + did if did else ''}", flush=True)
        for fault in found.faults:
            print(f"  backprobe stopped watching: {fault}")
        for test, (before, after) in differ[mode].items():
            print(f"  {test}: {before} without, {after} with")
            if given.verbose:
                print("    " + found.said.get(test, "").replace("\n", "\n    "))
    for test in flaky:
        print(f"flaky, left out: {test}: {plain.ended[test]}, then {again.ended.get(test)}")
    print(text.getvalue(), end="")
    return int(any(differ.values()))


if __name__ == "__main__":
    sys.exit(main())
