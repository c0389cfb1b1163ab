"""Coverage of a run: "no findings" is conclusive only if everything was watched."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe import Trace
from backprobe.records import Facts, Finding, RankSeen, Stopped, Unseen, Watched
from backprobe.report.document import document
from backprobe.view.parts import headline, verdict

ENDED: dict[str, Any] = {"started": 1.0, "ended": 2.0, "steps": 3, "backwards": 3, "pid": 10, "machine": "far"}


def trace(*seen: Any, unseen: tuple[Unseen, ...] = (), findings: tuple[Finding, ...] = (), **info: Any) -> Trace:
    return Trace((), Facts(unseen=unseen, seen=(Watched(0, 2), *seen)), {**ENDED, **info}, findings)


def test_all_was_watched() -> None:
    calm = trace()
    assert calm.coverage.gaps == () and verdict(calm).text == "No problems found."
    (own,) = calm.processes
    assert (own.ended, own.steps, own.backwards) == ("finished", 3, 3)
    assert calm.as_dict()["stopped"] is None and calm.as_dict()["watched"]["last"] == 2


def test_nothing_that_hides_something_leaves_it_at_that() -> None:
    named = Unseen("modules", 2, "got gradients, but were not called", hides=False)
    assert verdict(trace(unseen=(named,))).text == "No problems found."


@pytest.mark.parametrize(
    ("incomplete", "why"),
    [
        (lambda: trace(unseen=(Unseen("compiled regions", 2, "inside"),)), "not seen: 2 compiled regions"),
        (lambda: trace(RankSeen(1, 11, error="ValueError: bad\nbatch")), "rank 1 ended with ValueError: bad"),
        (lambda: trace(RankSeen(None, 11, over=False)), "process 11 ended without a word (killed)"),
        (lambda: trace(RankSeen(2, 11, over=False, alive=True, backwards=1)), "rank 2 was still running"),
        (lambda: trace(error="ValueError: bad\nbatch"), "the script ended with ValueError: bad"),
        (lambda: trace(code=2), "the script exited with 2"),
        (lambda: Trace((), Facts(), {"started": 1.0, "pid": 10, "machine": "far"}, ()), "the run was cut off"),
        (lambda: trace(Watched(0, 2, "minimal")), "nodes were not looked at (level minimal)"),
    ],
)
def test_not_all_was_watched(incomplete: Callable[[], Trace], why: str) -> None:
    made = incomplete()
    if made.facts.of(Watched)[1:]:  # in the place of the other
        made.facts = Facts(seen=made.facts.seen[1:])
    assert made.coverage.gaps == (why,)
    assert verdict(made).text == f"Nothing found, but backprobe did not see everything: {why}."
    assert "No problems found." not in verdict(made).text


def test_inspected_steps_are_reported() -> None:
    some = Trace((), Facts(seen=(Watched(0, 99, begin=10, end=50, every=4),)), ENDED, ())
    assert some.coverage.gaps == ("nodes were looked at in one step in 4 from step 10 on up to step 49",)
    assert some.as_dict()["watched"] == {
        "first": 0,
        "last": 99,
        "level": "nodes",
        "nodes": {"first": 10, "end": 50, "every": 4, "budget": None},
        "recorded": None,
        "repeated": 0,
        "only_counted": 0,
    }


def test_a_run_that_goes_on_and_one_of_a_process_that_is_gone() -> None:
    here = {"started": 1.0, "machine": platform.node()}
    assert Trace((), Facts(), {**here, "pid": os.getpid()}, ()).processes[0].ended == "running"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert Trace((), Facts(), {**here, "pid": gone.pid}, ()).processes[0].ended == "killed"


def test_the_place_where_watching_stopped_comes_first() -> None:
    stopped = Trace((), Facts(seen=(Watched(0, 1, stopped=Stopped(2, "it failed")),)), ENDED, ())
    assert headline(stopped).startswith("backprobe: recording stopped at step 2: it failed; ")
    assert verdict(stopped).text == "Nothing found before recording stopped."
    assert stopped.as_dict()["stopped"] == {"step": 2, "reason": "it failed"}
    assert document(stopped)["run"]["gaps"] == ["recording stopped at step 2: it failed"]


def test_a_process_that_is_no_part_of_it_needs_no_end() -> None:
    """The server of a ``multiprocessing.Manager`` runs until the interpreter is gone."""
    assert trace(RankSeen(None, 11, over=False, alive=True)).coverage.gaps == ()


TRAINS = """
import torch, sys
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 1)
def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
"""

BREAKS_US = """
train(3)
from backprobe.observe.backward import calls
def fails(*given):
    raise ZeroDivisionError("planted")
calls.walk = fails
train(250)
print(sum(p.sum() for p in model.parameters()).item())
"""


def run(folder: Path, text: str, *options: str, before: str = "") -> tuple[subprocess.CompletedProcess[str], Any]:
    (folder / "train.py").write_text(TRAINS + text)
    command = [sys.executable, "-m", "backprobe", "run", "--findings", "found.json", *options, "train.py"]
    shell = ["bash", "-c", f'{before}; exec "$@"', "bash", *command] if before else command
    done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=600)
    return done, json.loads((folder / "found.json").read_text())


def test_watching_that_stops(tmp_path: Path) -> None:
    """In the headline, in the exit code of --fail-on, in the JSON, in the kept run and in the page."""
    done, found = run(tmp_path, BREAKS_US, "--fail-on", "error", "--out", "kept")
    assert done.returncode == 3
    told = " ".join(done.stderr.split())
    assert "backprobe: recording stopped at step 202: too much of it failed, with ZeroDivisionError: planted;" in told
    assert "Nothing found, but backprobe did not see everything" in told and "No problems found" not in told
    assert found["stopped"]["step"] == 202 and "planted" in found["stopped"]["reason"]
    assert found["watched"]["first"] == 0 and found["watched"]["last"] == 201
    assert [(u["what"], u["count"], u["hides"]) for u in found["unseen"]] == [("internal error", 200, True)]
    kept = backprobe.load_run(tmp_path / "kept")
    assert kept.coverage.observed.stopped == Stopped(202, found["stopped"]["reason"])
    assert kept.as_dict() == found == json.loads((tmp_path / "kept" / "findings.json").read_text())
    shown = subprocess.run(
        [sys.executable, "-m", "backprobe", "show", "kept"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert "recording stopped at step 202" in " ".join(shown.stdout.split())
    assert "recording stopped at step 202" in document(kept)["run"]["gaps"][0]
    kept.close()
    # The script is as alone.
    (tmp_path / "train.py").write_text(TRAINS + BREAKS_US.replace("calls.walk = fails", ""))
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert alone.stdout == done.stdout


@pytest.mark.parametrize(
    ("end", "code", "ended", "says"),
    [
        ("", 0, "finished", "No problems found."),
        ("raise ValueError('bad batch')", 1, "failed", "the script ended with ValueError: bad batch."),
        ("sys.exit(4)", 4, "failed", "the script exited with 4."),
    ],
)
def test_how_a_script_ends(tmp_path: Path, end: str, code: int, ended: str, says: str) -> None:
    done, found = run(tmp_path, f"train(3)\n{end}\n", "--no-keep", "--fail-on", "warning")
    assert done.returncode == code
    assert says in " ".join(done.stderr.split()) and found["findings"] == []
    (own,) = found["ranks"]
    assert (own["ended"], own["code"], own["steps"], own["rank"]) == (ended, code, 3, None)


CHILDREN = """
import multiprocessing, os, signal, time
def child(how):
    train(2)
    if how == "raises":
        raise ValueError("in a child")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    torch.set_num_threads(1)
    for how in ("ends", "raises", "dies"):
        one = context.Process(target=child, args=(how,))
        one.start()
        one.join()
    train(2)
"""


@pytest.mark.slow
def test_how_children_end(tmp_path: Path) -> None:
    done, found = run(tmp_path, CHILDREN, "--no-keep")
    assert done.returncode == 0, done.stderr
    own, *children = found["ranks"]
    assert own["ended"] == "finished"
    assert sorted(c["ended"] for c in children) == ["failed", "finished", "killed"]
    assert [c["error"] for c in children if c["ended"] == "failed"] == ["ValueError: in a child"]
    told = " ".join(done.stderr.split())
    assert "ended with ValueError: in a child" in told and "ended without a word (killed)" in told
    assert "No problems found" not in told


def test_a_training_thread_is_reported(tmp_path: Path) -> None:
    text = "import threading\none = threading.Thread(target=train, args=(3,))\none.start()\none.join()\ntrain(2)\n"
    done, found = run(tmp_path, text, "--no-keep")
    assert [(one["what"], one["hides"]) for one in found["unseen"]] == [("module calls in other threads", True)]
    assert "No problems found" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="bounds the size of files with ulimit")
def test_a_run_that_cannot_be_written_is_watched_to_its_end(tmp_path: Path) -> None:
    bound = "unset ${!COVERAGE@}; ulimit -f 300"  # what measures the tests' coverage writes files too
    done, found = run(tmp_path, "train(1500)\nmodel(torch.ones(2, 3)).mean().backward()\n", before=bound)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert found["watched"]["last"] == 1500 and found["stopped"] is None
    (lost,) = found["unseen"]
    assert lost["what"] == "kept run" and lost["note"].startswith("not kept from step ")
    assert "Not seen: 1 kept run" in " ".join(done.stderr.split())
