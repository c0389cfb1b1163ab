"""What a model may do with backprobe, as functions of plain text: each runs the command in a process of its own, and
its answer is bounded.

A script gets no standard input, and what it prints is a part of the answer. One that takes too long is ended by
SIGTERM, so that what was seen until then is told, and by SIGKILL where it does not end then.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

#: Characters of a script's output that are told, and of any answer.
OUTPUT, ANSWER = 4_000, 32_000
#: Seconds that a script which is to end has for that.
ENDING = 30.0


def run_script(
    script: str,
    arguments: Sequence[str] = (),
    folder: str = ".",
    module: bool = False,
    ask: Sequence[str] = (),
    budget: str = "5%",
    seconds: float = 600.0,
) -> str:
    """Run a PyTorch training script under backprobe: its exit code, the end of its output, and findings as JSON, the
    most important first. Each finding names the kind of mistake, module, source lines and tensor.

    script: path of the script, or with module=true a module's name. folder: where it runs. ask: what is looked for
    only when asked (functions, divergence, memory, checkpoints). budget: how much longer it may take, "none" to
    record every step. seconds: it is ended after that, and what was seen until then is told.
    """
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "findings.json"
        options = [*(part for topic in ask for part in ("--ask", topic)), *(("-m",) if module else ())]
        command = ["run", "--budget", budget, "--findings", str(file), *options, script, *arguments]
        code, out, err = _backprobe(command, folder, seconds)
        found = json.loads(file.read_text()) if file.exists() else None
    ended = f"ended after {seconds:g} seconds" if code is None else code
    answer = {"exit_code": ended, "stdout": _end(out), "stderr": _end(err), "found": found}
    return _bounded(json.dumps(answer, indent=1))


def findings(run: str = "", folder: str = ".") -> str:
    """The findings of a run that was kept, as JSON; of the latest in `folder` where none is named."""
    return _text(["show", "--json", *([run] if run else [])], folder)


def show(run: str = "", folder: str = ".") -> str:
    """The report of a run that was kept, as text: findings with source lines, gradient norms by module and step."""
    return _text(["show", *([run] if run else [])], folder)


def runs(folder: str = ".") -> str:
    """The runs that were kept in `folder`, the latest last."""
    return _text(["runs"], folder)


def explain(kind: str = "") -> str:
    """What a kind of finding means, why it matters, an example, how it is mended; without a kind: all of them."""
    return _text(["explain", *([kind] if kind else [])], ".")


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
    given = [part for place in breakpoints for part in ("-b", place)]
    given += [part for command in (*commands, "q") for part in ("-c", command)]
    code, out, err = _backprobe(["debug", *given, script, *arguments], folder, seconds)
    note = f"\n(ended after {seconds:g} seconds)" if code is None else ""
    return _bounded(out + (f"\n--- standard error ---\n{_end(err)}" if err else "") + note)


TOOLS: tuple[Callable[..., str], ...] = (run_script, findings, show, runs, explain, debug_script)


def _text(command: Sequence[str], folder: str) -> str:
    _, out, err = _backprobe(command, folder, 600.0)
    return _bounded(out + err)


def _backprobe(command: Sequence[str], folder: str, seconds: float) -> tuple[int | None, str, str]:
    """Exit code, ``None`` where it took too long, and what was written."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        python = [sys.executable, "-m", "backprobe", *command]
        try:
            process = subprocess.Popen(python, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as error:
            return 2, "", f"backprobe: cannot run in {folder}: {error.strerror}"
        code: int | None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        out.seek(0), err.seek(0)
        return code, out.read().decode(errors="replace"), err.read().decode(errors="replace")


def _end(text: str, most: int = OUTPUT) -> str:
    return text if len(text) <= most else f"... ({len(text) - most:,} characters before)\n{text[-most:]}"


def _bounded(text: str) -> str:
    """The beginning and the end of a long answer."""
    if len(text) <= ANSWER:
        return text
    half = ANSWER // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out)\n{text[-half:]}"
