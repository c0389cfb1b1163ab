"""How processes with a debugger end: paused, forked, interrupted, with deep graphs. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PREPARE = """\
import os, signal, sys, threading, time
import torch, backprobe
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
loss = model(torch.ones(2, 3)).sum()
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own; a script that hangs is killed, and raises ``TimeoutExpired``."""
    return subprocess.run([sys.executable, "-c", PREPARE + script], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    "script",
    [
        "dbg = backprobe.debug(loss); dbg.step(); print('end')",
        "dbg = backprobe.debug(loss); dbg.step(); print('end'); sys.exit(0)",
        "a, b = backprobe.debug(loss, retain_graph=True), backprobe.debug(loss, retain_graph=True); print('end')",
    ],
)
def test_the_interpreter_ends_while_it_stands(script: str) -> None:
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_uncaught_error_while_it_stands() -> None:
    done = run("dbg = backprobe.debug(loss); dbg.step(); raise KeyError('mine')")
    assert done.returncode == 1 and done.stderr.rstrip().endswith("KeyError: 'mine'")


def test_a_forked_child() -> None:
    done = run(
        """
dbg = backprobe.debug(loss, retain_graph=True)
dbg.step()
pid = os.fork()
if pid == 0:
    try:
        dbg.step()
    except backprobe.BackprobeError as error:
        print(error, flush=True)
    del dbg
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
dbg.finish()
print(model[0].weight.grad is not None)
"""
    )
    assert done.returncode == 0, done.stderr
    assert "belongs to the process before the fork: its thread is not here" in done.stdout
    assert done.stdout.endswith("True\n")


def test_ctrl_c_on_a_handle_stops_at_the_next_node() -> None:
    done = run(
        """
import linecache
ran, left, main = [], threading.Event(), threading.get_ident()
signal.signal(signal.SIGUSR1, lambda *_: None)
def waits():
    frame = sys._current_frames()[main]
    return "acquire()" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
def ctrl_c(seen):
    os.kill(os.getpid(), signal.SIGINT)
    while not seen():  # a signal that comes right before a thread waits for a lock is seen with the next one
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
def press():
    while not waits():
        time.sleep(0.001)
    ctrl_c(lambda: dbg._pilot.interrupted)
def twice():
    press()
    ctrl_c(left.is_set)
class Long(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0
    @staticmethod
    def backward(ctx, g):
        ran.append(g)
        {5: press, 10: twice}.get(len(ran), int)()
        return g
x = torch.ones(2, requires_grad=True)
y = x
for _ in range(20):
    y = Long.apply(y)
dbg = backprobe.debug(y.sum())
stop = dbg.cont()
print(stop.reason, len(ran), dbg.state)
try:
    dbg.finish()
except KeyboardInterrupt:
    print("left alone", len(ran))
left.set()
stop = dbg.step()
print(stop.reason, len(ran), dbg.state)
dbg.abort()
print(dbg.state, x.grad)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted 5 stopped\nleft alone 10\nstep 11 stopped\naborted None\n"


def test_ctrl_c_between_any_two_instructions_of_a_command() -> None:
    """Raised there by a trace function: the handle still goes to the end, with the gradients of a plain backward."""
    done = run(
        """
from backprobe.engine import handle
own = {c.__code__ for c in vars(handle._Engine).values() if hasattr(c, "__code__")}
own |= {c.__code__ for c in vars(handle._Command).values() if hasattr(c, "__code__")}
class Interrupting:
    def __init__(self, after):
        self.left = after
    def __call__(self, frame, event, argument):
        if frame.f_code not in own:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self
def backward(x, after):
    dbg = backprobe.debug((x * 2).exp().sum())
    interrupting = Interrupting(after)
    for go in (dbg.step, dbg.finish):
        try:
            sys.settrace(interrupting)
            go()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
    while dbg.state not in ("over", "aborted"):
        dbg.finish()
    return interrupting.left > 0, dbg.state
places, through = 0, False
while not through:
    places += 1
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    through, state = backward(x, places)
    assert state == "over" and torch.equal(x.grad, 2 * (2 * x.detach()).exp()), (places, state, x.grad)
print(places)
"""
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


DEEP_GRAPH_SCRIPT = """
import gc
def chain():
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(60_000):
        y = y * 1.0
    return x, y.sum()
"""


@pytest.mark.parametrize(
    "script",
    [
        "x, loss = chain(); dbg = backprobe.debug(loss); dbg.cont(); del dbg, loss; gc.collect(); print(x.grad)",
        "x, loss = chain(); dbg = backprobe.debug(loss, retain_graph=True); dbg.cont(); del loss, dbg; print(x.grad)",
        "x, loss = chain(); dbg = backprobe.debug(loss); dbg.step(); del dbg; loss.backward(); del loss; print(x.grad)",
    ],
)
def test_a_deep_graph_does_not_overflow_the_stack(script: str) -> None:
    done = run(DEEP_GRAPH_SCRIPT + script)
    assert done.returncode == 0 and done.stdout == "tensor([1., 1.])\n", (done.returncode, done.stderr)
