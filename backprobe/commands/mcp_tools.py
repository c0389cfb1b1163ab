"""The tools of the MCP server, as functions that return text. Each runs the command line in a separate process, and its
answer is bounded.

A script gets no standard input, and its output is part of the answer. A script that takes too long gets SIGTERM, so
that the findings until then are still reported; what is left of it and of the processes that it started is then killed.

Note [Reading runs executes nothing]: the tools that read a run may be pointed at a stranger's folder. Their process is
isolated (``python -I``) and gets the import path of this one, without the folder that it works in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from ..basics.text import without_controls

#: Maximum number of characters of a script's output in an answer, and of any answer.
OUTPUT, ANSWER = 4_000, 32_000
#: Seconds that a script has to end after SIGTERM.
ENDING = 30.0
#: Seconds to wait for the rest of the output of a process that has ended: a child of the process may hold it open.
LAST_OUTPUT_S = 5.0
#: Python code for an isolated process: runs the command line; its first argument is the import path.
_ISOLATED = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); sys.argv[0] = 'backprobe'; "
    "from backprobe.commands import main; sys.exit(main())"
)
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


def run_script(
    script: str,
    arguments: Sequence[str] = (),
    folder: str = ".",
    module: bool = False,
    checks: Sequence[str] = (),
    budget: str = "5%",
    seconds: float = 600.0,
) -> str:
    """Run a PyTorch training script under backprobe: its exit code, the end of its output, and findings as JSON, the
    most important first. Each finding names the kind of mistake, module, source lines and tensor.

    script: path of the script, or with module=true a module's name. folder: where it runs. checks: opt-in checks
    (functions, divergence, memory, checkpoints). budget: how much longer it may take, "none" to record every step.
    seconds: a script that takes longer is ended, and the findings until then are reported.
    """
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "findings.json"
        options = [*(f"--check={topic}" for topic in checks), *(("-m",) if module else ())]
        command = ["run", f"--budget={budget}", f"--findings={file}", *options, "--", script, *arguments]
        code, out, err = _backprobe(command, folder, seconds, isolated=False)
        found = json.loads(file.read_text()) if file.exists() else None
    ended = f"ended after {seconds:g} seconds" if code is None else code
    answer = {"exit_code": ended, "stdout": _end(out), "stderr": _end(err), "found": found}
    return _bounded(json.dumps(answer, indent=1))


def findings(run: str = "", folder: str = ".") -> str:
    """Return the findings of a saved run as JSON; by default of the latest run in `folder`."""
    return _text(["show", "--json", *_named(run)], folder)


def show(run: str = "", folder: str = ".") -> str:
    """Return the report of a saved run as text: findings with source lines, gradient norms by module and step."""
    return _text(["show", *_named(run)], folder)


def runs(folder: str = ".") -> str:
    """List the saved runs in `folder`, the latest last."""
    return _text(["runs"], folder)


def explain(kind: str = "") -> str:
    """Explain a kind of finding: its meaning, why it matters, an example, how to fix it; without a kind, list all
    kinds.
    """
    return _text(["explain", *_named(kind)], ".")


def debug_script(
    script: str,
    breakpoints: Sequence[str] = (),
    commands: Sequence[str] = ("where", "gradients", "why"),
    arguments: Sequence[str] = (),
    folder: str = ".",
    seconds: float = 600.0,
) -> str:
    """Stop a training script inside its backward and give commands there: the transcript.

    breakpoints: a node type ("*Norm*"), "module PATH", "param NAME", "file.py:41", "norm > 10", "nonfinite"; none:
    before the first node. commands: those of the prompt ("help" lists them): where, gradients, why, saved, p EXPR,
    rerun float64 (the node again in double precision), step, continue. After the last one the script is quit.
    """
    given = [f"--break={place}" for place in breakpoints]
    given += [f"-c{command}" for command in (*commands, "q")]
    code, out, err = _backprobe(["debug", *given, "--", script, *arguments], folder, seconds, isolated=False)
    note = f"\n(ended after {seconds:g} seconds)" if code is None else ""
    return _bounded(out + (f"\n--- standard error ---\n{_end(err)}" if err else "") + note)


#: Tools that only read; tools that run a script.
READING: tuple[Callable[..., str], ...] = (findings, show, runs, explain)
RUNNING: tuple[Callable[..., str], ...] = (run_script, debug_script)
TOOLS: tuple[Callable[..., str], ...] = (run_script, findings, show, runs, explain, debug_script)


def _named(name: str) -> list[str]:
    """Return a name as an argument that is never parsed as an option."""
    return ["--", name] if name else []


def _text(command: Sequence[str], folder: str) -> str:
    """Return the output of a command that only reads runs, cut to the maximum length."""
    code, out, err = _backprobe(command, folder, 600.0, isolated=True)
    return _bounded(out + err + ("\n(ended after 600 seconds)" if code is None else ""))


def _import_path(folder: str) -> list[str]:
    """Return the import path of this process, without the working directory and without `folder`."""
    kept_out = {os.path.realpath(one) for one in (os.getcwd(), folder)}
    there = (os.path.abspath(one) for one in sys.path if one)
    return [_PACKAGE_ROOT, *(one for one in there if os.path.realpath(one) not in kept_out)]


def _python(command: Sequence[str], folder: str, isolated: bool) -> list[str]:
    """Return the command line of backprobe in a new process: Note [Reading runs executes nothing]."""
    if not isolated:
        return [sys.executable, "-m", "backprobe", *command]
    return [sys.executable, "-I", "-X", "utf8", "-c", _ISOLATED, json.dumps(_import_path(folder)), *command]


def _backprobe(command: Sequence[str], folder: str, seconds: float, isolated: bool) -> tuple[int | None, str, str]:
    """Run a command of backprobe in a new process; return its exit code, standard output and standard error.

    The exit code is ``None`` after a timeout. Of long outputs, the beginning and the end are returned.

    :param folder: the working folder of the process.
    :param isolated: Note [Reading runs executes nothing].
    """
    try:
        process = subprocess.Popen(
            _python(command, folder, isolated),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a zero character in a name
        return 2, "", f"backprobe: cannot run in {without_controls(folder)}: {getattr(error, 'strerror', error)}"
    assert process.stdout is not None and process.stderr is not None
    out, err = _Output(process.stdout), _Output(process.stderr)
    code: int | None
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
        _kill_group(process)
        process.wait()
    return code, out.text(), err.text()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started."""
    if os.name != "posix":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Output:
    """Reads the output of a process as it comes, and keeps the beginning and the end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._begin, self._end, self._left_out = bytearray(), bytearray(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Read until the process closes its output; runs in a thread of its own."""
        with self._pipe:
            while part := self._pipe.raw.read(1 << 16):  # type: ignore[attr-defined]
                room = ANSWER - len(self._begin)
                self._begin += part[:room]
                self._end += part[room:]
                surplus = max(len(self._end) - ANSWER, 0)
                self._left_out += surplus
                del self._end[:surplus]

    def text(self) -> str:
        """Return the output after the process has ended. Control characters are made visible."""
        self._reader.join(LAST_OUTPUT_S)
        gap = f"\n... ({self._left_out:,} bytes left out)\n".encode() if self._left_out else b""
        return without_controls((bytes(self._begin) + gap + bytes(self._end)).decode(errors="replace"), lines=True)


def _end(text: str, most: int = OUTPUT) -> str:
    """Return the last `most` characters of a text."""
    return text if len(text) <= most else f"... (more before)\n{text[-most:]}"


def _bounded(text: str) -> str:
    """Return an answer cut to the maximum length: the beginning and the end of a long one."""
    if len(text) <= ANSWER:
        return text
    half = ANSWER // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out)\n{text[-half:]}"
