"""Run PyTorch's own test files under backprobe and list the tests that end differently.

    python tools/torch_suites.py pytorch/test                                # every file of FILES, trace and stepped
    python tools/torch_suites.py pytorch/test test_autograd.py --mode trace -k hook
    python tools/torch_suites.py pytorch/test --plain lists/                 # with lists of passing tests made before

FOLDER is the test folder of the installed version of torch. A process of its own runs the tests of a file in a mode:

    plain     without backprobe, twice: tests that do not pass both times are left out
    trace     each test inside a ``backprobe.trace()`` of its own
    full      the same at the most detailed level
    session   one ``backprobe.trace()`` around all tests of the file
    stepped   a ``breakpoint_backward`` that steps through every node of every backward call
    attached  a ``breakpoint_backward`` that stops before and after every node and goes on
    debug     every backward call becomes a ``backprobe.debug`` that is stepped to its end, in a second thread
    inspect   the same; every stop reads the gradients, the saved tensors and the path from the loss

A process that crashes, or in which no test begins or ends for --patience seconds, counts against the test that ran; the
remaining tests run in a new process. A test that ends differently is run again, plain and under the mode, each in a new
process; it counts as lost if it passes plain and fails again, and as not compared if it does not pass plain either. The
line of a mode states how much backprobe did.

Exit code: 1 if a test was lost, 2 for wrong use or a file of which no test could be run, 0 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import contextvars
import functools
import importlib.util
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODES = ("trace", "full", "session", "stepped", "attached", "debug", "inspect")
FILES = (
    *("autograd/test_autograd_variable_api.py", "autograd/test_variable_execution_engine.py"),
    *("dynamo/test_activation_checkpointing.py", "dynamo/test_autograd_function.py", "dynamo/test_bytecode_hook.py"),
    *("dynamo/test_higher_order_ops.py", "dynamo/test_hooks.py", "dynamo/test_misc.py", "dynamo/test_optimizers.py"),
    *("dynamo/test_python_autograd.py", "dynamo/test_repros.py", "dynamo/test_subclasses.py"),
    *("functorch/test_eager_transforms.py", "nn/test_convolution.py", "nn/test_dropout.py", "nn/test_embedding.py"),
    *("nn/test_global_module_full_backward_hooks.py", "nn/test_lazy_modules.py", "nn/test_module_hooks.py"),
    *("nn/test_multihead_attention.py", "nn/test_packed_sequence.py", "nn/test_parametrization.py"),
    *("nn/test_pooling.py", "nn/test_pruning.py", "optim/test_lrscheduler.py", "optim/test_optim.py"),
    *("optim/test_swa_utils.py", "test_autocast.py", "test_autograd.py", "test_dataloader.py"),
    *("test_flop_counter.py", "test_functional_optim.py", "test_fx.py", "test_jit.py", "test_modules.py"),
    *("test_nestedtensor.py", "test_nn.py", "test_tensor_module_load.py", "test_utils.py"),
    "test_utils_checkpoint_api.py",
)


@dataclass
class Result:
    """How the tests of one file ended in one mode.

    :ivar outcomes: test name (``Class::test``) to outcome; ``outputs``: what a test printed when it failed.
    :ivar counts: what backprobe did meanwhile.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        if "test" in line:
            self.outcomes[line["test"]], self.outputs[line["test"]] = line["outcome"], line["output"]
        if "internal_error" in line:
            self.errors.append(f"backprobe stopped watching in {line['in']}: {line['internal_error']}")
        self.counts.update(line.get("counts", {}))

    def passed(self) -> set[str]:
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}


@dataclass
class Request:
    """A request to a child process: run the tests in `only`, or all if it is None, except those in `skip`."""

    folder: str
    file: str
    mode: str
    pattern: str = ""
    only: list[str] | None = None
    skip: list[str] = field(default_factory=list)


def run_mode(request: Request, patience_s: float) -> Result:
    """Run the tests of a file in one mode, in as many processes as it takes."""
    result = Result()
    while True:
        request.skip = list(result.outcomes)
        with tempfile.TemporaryDirectory() as folder:
            report, asked = Path(folder, "report"), Path(folder, "request")
            report.touch()
            asked.write_text(json.dumps(vars(request)))
            with Path(folder, "output").open("w") as output:
                command = [sys.executable, __file__, "--child", str(asked), str(report)]
                child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                reason = _wait(child, report, patience_s)
            running, complete = None, False
            for text in report.read_text().splitlines():
                line = json.loads(text)
                result.add(line)
                complete = complete or "complete" in line
                running = line.get("begin", None if "test" in line else running)
            if complete:
                return result
            tail = Path(folder, "output").read_text(errors="replace")[-2000:]
            if running is None:
                result.errors.append(f"the process ended between tests ({reason}):\n{tail}")
                return result
            result.outcomes[running], result.outputs[running] = "crashed", f"{reason}\n{tail}"


def _wait(child: subprocess.Popen[bytes], report: Path, patience_s: float) -> str:
    """Wait for the end of the child; kill it if no test begins or ends for `patience_s` seconds."""
    size, since = 0, time.monotonic()
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        now = report.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > (patience_s if size else 300 + patience_s):  # imports come first
            child.kill()
            child.wait()
            return f"no progress for {patience_s:.0f} s"
    return f"exit code {child.returncode}"


# The child process


class Recorder(unittest.TestResult):
    """Writes each outcome to the report as the test ends, so that a crash loses none."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._write = write
        self._outcome, self._output = "passed", ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome, self._output = "passed", ""
        self._write({"begin": name_of(test)})

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write({"test": name_of(test), "outcome": self._outcome, "output": self._output})

    def addError(self, test: Any, err: Any) -> None:
        self._outcome, self._output = "error", "".join(traceback.format_exception(*err))

    def addFailure(self, test: Any, err: Any) -> None:
        self._outcome, self._output = "failed", "".join(traceback.format_exception(*err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._outcome, self._output = "failed", "".join(traceback.format_exception(*err))

    def addSkip(self, test: Any, reason: str) -> None:
        self._outcome = "skipped"

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._outcome = "failed as expected"

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._outcome = "passed unexpectedly"


class Mode:
    """A way to run tests: hooks around each file and each test. The base class runs them without backprobe."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def start(self) -> None: ...
    def stop(self) -> None: ...

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        yield

    def internal_error(self) -> BaseException | None:
        """The error that made backprobe stop watching, if there was one since the last call."""
        return None


class Traced(Mode):
    """A trace around each test."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._level = level
        self._trace: Any = None

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        import backprobe

        self._trace = backprobe.trace(level=self._level)
        self._trace.__enter__()

    def _leave(self) -> None:
        session = self._trace.session
        self.counts["backward calls"] += session.calls
        self._trace.__exit__(None, None, None)
        for unseen in self._trace.facts.unseen:
            if unseen.what != "internal error":
                self.counts[f"unseen: {unseen.what}"] += unseen.count

    def internal_error(self) -> BaseException | None:
        error: BaseException | None = self._trace.session.error
        return error


class TracedFile(Traced):
    """A mode with a single trace around all tests of a file."""

    def start(self) -> None:
        self._enter()

    def stop(self) -> None:
        self._leave()

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        yield


class Attached(Mode):
    """Breakpoints on every node of every backward call; `then` is what each stop answers: go on, or step."""

    def __init__(self, then: str | None) -> None:
        super().__init__()
        self._then = then
        self._points: Any = None

    def _stopped(self, stop: Any) -> str | None:
        self.counts["stops"] += 1
        return self._then

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        import backprobe

        where = {} if self._then else {"node": "*", "phase": "both"}
        self._points = backprobe.breakpoint_backward(action=self._stopped, **where)
        try:
            yield
        finally:
            self.counts["backward calls"] += self._points._stops.calls
            self._points.remove()

    def internal_error(self) -> BaseException | None:
        error: BaseException | None = self._points._session.error
        return error


class Debugged(Mode):
    """Every call that starts a backward pass, from Python code of any thread, becomes a debugger stepped to its end."""

    def __init__(self, inspect: bool) -> None:
        super().__init__()
        self._inspect = inspect
        #: Whether the call runs inside one that is stepped already: stepping goes into nested calls by itself.
        self._inside = contextvars.ContextVar("inside", default=False)
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        import torch

        for holder, name, call in (
            (torch.Tensor, "backward", "Tensor.backward"),
            (torch.autograd, "backward", "autograd.backward"),
            (torch.autograd, "grad", "grad"),
        ):
            original = getattr(holder, name)
            stepped = self._stepped(original, call)
            setattr(holder, name, stepped)
            compiled = torch.jit._builtins._find_builtin(original)
            if compiled is not None:  # torch.jit.script knows the function by its identity
                torch.jit._builtins._register_builtin(stepped, compiled)
            self._undo.append(functools.partial(setattr, holder, name, original))

    def stop(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _stepped(self, original: Callable[..., Any], call: str) -> Callable[..., Any]:
        import torch

        from backprobe.basics.errors import BackprobeError

        @functools.wraps(original)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            # A thread of the engine's pool runs nodes of a call that is stepped already.
            pooled = isinstance(threading.current_thread(), threading._DummyThread)
            if self._inside.get() or pooled or torch.compiler.is_compiling():
                return original(*args, **kwargs)
            token = self._inside.set(True)
            try:
                return self._run(call, args, kwargs)
            except BackprobeError as error:
                if "inside a torch.func transform" not in str(error):
                    raise
            finally:
                self._inside.reset(token)
            self.counts["refused: torch.func"] += 1
            return original(*args, **kwargs)

        return stepped

    def _run(self, call: str, args: Any, kwargs: Any) -> Any:
        import backprobe

        if not args:  # all arguments by name
            kwargs = dict(kwargs)
            for name in ("tensors", "outputs", "self"):
                if name in kwargs:
                    args = (kwargs.pop(name),)
                    break
        self.counts["backward calls"] += 1
        debugger = backprobe.debug(*args, call=call, **kwargs)
        while not debugger.done:
            self.counts["stops"] += 1
            if self._inspect:
                self._read(debugger)
            debugger.step("into")
        return debugger.result

    def _read(self, debugger: Any) -> None:
        stop = debugger.stop
        values = [str(stop.node), repr(stop), debugger.where(), stop.grad_outputs]
        if stop.phase == "after":
            values.append(stop.grad_inputs)
        try:
            values += [stop.saved, {name: repr(value) for name, value in stop.saved.items()}]
        except RuntimeError:
            self.counts["saved tensors that could not be read"] += 1
        self.counts["values read"] += len(values)


_MODES: dict[str, Callable[[], Mode]] = {
    "plain": Mode,
    "trace": lambda: Traced("nodes"),
    "full": lambda: Traced("full"),
    "session": lambda: TracedFile("nodes"),
    "stepped": lambda: Attached("node"),
    "attached": lambda: Attached(None),
    "debug": lambda: Debugged(inspect=False),
    "inspect": lambda: Debugged(inspect=True),
}


def run_child(request: Request, report: str) -> None:
    """Run the tests that `request` names and write `report` line by line. Does not return."""
    path = Path(request.folder, request.file).resolve()
    sys.path[:0] = [str(path.parent), str(Path(request.folder).resolve())]
    sys.argv = [str(path)]
    os.chdir(request.folder)
    sys.setrecursionlimit(2000)  # hooks between two nested calls take frames too
    with Path(report).open("w") as out:

        def write(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        mode = _MODES[request.mode]()
        mode.start()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        only, skip = request.only and set(request.only), set(request.skip)
        recorder = Recorder(write)
        for test in _flatten(unittest.defaultTestLoader.loadTestsFromModule(module)):
            name = name_of(test)
            if name in skip or request.pattern not in name or (only is not None and name not in only):
                continue
            with mode.around():
                test(recorder)
                error = mode.internal_error()
            if error is not None:
                write({"internal_error": "".join(traceback.format_exception(error)), "in": name})
                mode.stop()
                mode.start()
        mode.stop()
        write({"complete": True, "counts": dict(mode.counts)})
    os._exit(0)


def name_of(test: unittest.TestCase) -> str:
    """``Class::test``, as pytest spells it."""
    return "::".join(test.id().rsplit(".", 2)[-2:])


def _flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flatten(test)
        else:
            yield test


# The summary


def passing_plain(folder: str, file: str, options: argparse.Namespace) -> set[str]:
    """The tests of `file` that pass without backprobe: from the list in --plain, else those that pass twice."""
    if options.plain:
        known = Path(options.plain, f"plain_{file.removesuffix('.py').replace('/', '.')}.txt")
        if known.exists():
            tests = {line.split("::", 1)[1] for line in known.read_text().split()}
            return {test for test in tests if options.pattern in test}
    runs = [run_mode(Request(folder, file, "plain", options.pattern), options.patience).passed() for _ in range(2)]
    if options.write_plain:
        known = Path(options.write_plain, f"plain_{file.removesuffix('.py').replace('/', '.')}.txt")
        known.write_text("".join(f"{file}::{test}\n" for test in sorted(runs[0] & runs[1])))
    return runs[0] & runs[1]


@dataclass
class Comparison:
    """The tests of a file under one mode, against the same tests without backprobe.

    :ivar lost: each test that is lost, and how it ended.
    :ivar not_compared: tests that passed plain before and do not now.
    """

    result: Result
    lost: dict[str, str] = field(default_factory=dict)
    not_compared: list[str] = field(default_factory=list)


def compare(folder: str, file: str, mode: str, known: set[str], patience_s: float) -> Comparison:
    """Run the tests in `known` under `mode`, and those that do not pass once more, plain and under `mode`."""
    comparison = Comparison(run_mode(Request(folder, file, mode, only=sorted(known)), patience_s))
    outcomes, outputs = comparison.result.outcomes, comparison.result.outputs
    if not outcomes:  # the file could not be loaded: no test of it will run alone either
        return comparison
    for test in sorted(known):
        if outcomes.get(test) == "passed":
            continue
        if run_mode(Request(folder, file, "plain", only=[test]), patience_s).outcomes.get(test) != "passed":
            comparison.not_compared.append(test)
            continue
        again = run_mode(Request(folder, file, mode, only=[test]), patience_s)
        if again.outcomes.get(test) != "passed":
            comparison.lost[test] = again.outcomes.get(test, "missing")
            outputs[test] = again.outputs.get(test, "")
    return comparison


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        run_child(Request(**json.loads(Path(sys.argv[2]).read_text())), sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the test folder of torch's sources")
    parser.add_argument("files", nargs="*", default=list(FILES), help="default: every file of FILES in this script")
    parser.add_argument("--mode", nargs="+", choices=("plain", *MODES), default=["trace", "stepped"])
    parser.add_argument("--plain", metavar="DIR", help="lists of the tests that pass without backprobe")
    parser.add_argument("--write-plain", metavar="DIR", help="write such lists")
    parser.add_argument("-k", dest="pattern", default="", help="only tests with this text in their name")
    parser.add_argument("--patience", type=float, default=300.0, metavar="S", help="seconds for one test, default 300")
    parser.add_argument("-v", dest="verbose", action="store_true", help="show the output of lost tests")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for file in options.files:
        if not Path(options.folder, file).exists():
            print(f"{file}: not in {options.folder}", file=sys.stderr)
            return 2
        known = passing_plain(options.folder, file, options)
        total["tests"] += len(known)
        for mode in options.mode:
            comparison = compare(options.folder, file, mode, known, options.patience)
            total[mode] += len(comparison.lost)
            total["not run"] += not comparison.result.outcomes
            report(file, mode, len(known), comparison, options.verbose)
    print(f"{total['tests']} tests; lost: " + ", ".join(f"{mode} {total[mode]}" for mode in options.mode))
    if total["not run"]:
        return 2
    return int(any(total[mode] for mode in options.mode))


def report(file: str, mode: str, known: int, comparison: Comparison, verbose: bool) -> None:
    """Print how the tests of `file` ended under `mode`."""
    result = comparison.result
    if result.outcomes:
        parts = [f"{known} pass plain, {len(comparison.lost)} lost"]
        if comparison.not_compared:
            parts.append(f"{len(comparison.not_compared)} not compared")
        if result.counts:
            parts.append(", ".join(f"{number:,} {what}" for what, number in sorted(result.counts.items())))
        print(f"{file} {mode}: " + "; ".join(parts), flush=True)
    else:
        print(f"{file} {mode}: no test could be run", flush=True)
    for error in result.errors:
        print(f"  {error}", flush=True)
    for test in comparison.not_compared:
        print(f"  {test}: does not pass plain", flush=True)
    for test, outcome in comparison.lost.items():
        print(f"  {test}: {outcome}", flush=True)
        if verbose:
            print("    " + result.outputs.get(test, "").replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
