"""``backprobe debug`` as a person uses it: commands on standard input, in a process of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backprobe.engine.prompt.command import COMMANDS

SCRIPT = """\
import sys, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x):
        h = self.enc(x)
        return self.head(h)

class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        reason = "no gradient today"
        raise ValueError(reason)

def main():
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        opt.zero_grad()
        out = model(torch.randn(4, 3))
        if "fail" in sys.argv:
            out = Fails.apply(out)
        loss = out.square().mean()
        loss.backward()
        opt.step()
        print("step", step, loss.item(), flush=True)
    print("sum", sum(p.double().sum().item() for p in model.parameters()))

main()
"""


def debug(folder: Path, commands: str, *options: str, script: str = SCRIPT, args: tuple[str, ...] = ()):
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "backprobe", "debug", *options, "train.py", *args]
    return subprocess.run(command, input=commands, capture_output=True, text=True, cwd=folder, timeout=600)


def answers(out: str) -> list[str]:
    """Split the output at the prompts into the answers between them."""
    return [part.strip("\n") for part in out.split("(backprobe) ")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, cwd=folder, timeout=600)
    return done.stdout.splitlines()


def test_a_first_session(tmp_path: Path) -> None:
    commands = ["g", "n", "s", "g", "rerun", "l", "w", "graph 2", "ready", "q"]
    done = debug(tmp_path, "\n".join(commands) + "\n")
    assert done.returncode == 0, done.stderr
    first, g, n, s, g2, rerun, source, where, graph, ready, _ = answers(done.stdout)
    assert "'help' lists the commands" in first and "no terminal" in first and "--tty" in first
    assert "> before MeanBackward0  in (no module)  (0 of 14 nodes have run, step 0)" in first
    assert "train.py:32: loss = out.square().mean()" in first
    assert g == "  in  [0]  float32[]  norm 1  from 1 to 1"
    assert "> before PowBackward0" in n
    assert "> after PowBackward0" in s
    assert "in  [0]  float32[4, 1]" in g2 and "out [0]  float32[4, 1]" in g2 and "-> AddmmBackward0" in g2
    assert "as the engine's" in rerun and "NOT" not in rerun
    assert "   32 ->         loss = out.square().mean()" in source and "   33            loss.backward()" in source
    assert where.splitlines()[0] == "Tensor.backward()" and where.splitlines()[-1].startswith("-> PowBackward0")
    assert "ok    0  MeanBackward0" in graph and "->    1  PowBackward0" in graph and "... 10 after" in graph
    assert "AddmmBackward0 in head at" in ready


def test_going_on_changes_nothing(tmp_path: Path, plain: list[str]) -> None:
    for commands, options in (
        ("n 30\ns\n\n\n\n\nm\nm\no\nf\n", ()),
        ("c\n" * 8, ("--break", "module enc.1", "-b", "param head.*")),
    ):
        done = debug(tmp_path, commands, *options)
        lines = [line.rpartition("(backprobe) ")[2] for line in done.stdout.splitlines()]
        printed = [line for line in lines if line.startswith(("step", "sum"))]
        assert printed == plain[: len(printed)] and printed, done
        if "f\n" in commands:
            assert done.returncode == 0 and printed == plain


def test_breakpoints_from_the_command_line(tmp_path: Path) -> None:
    done = debug(
        tmp_path,
        "b\ndisable 1\nc\nclear 2\nb\ntbreak train.py:10 if norm > 0\nc\nb\nc\n",
        *("--break", "module enc.1 enter", "--break", "param head.bias", "-b", "NoSuch*"),
    )
    first, listed, _, second, _, cleared, tb, third, after, end = answers(done.stdout)
    assert "> before AccumulateGrad(head.bias)  in head" in first
    assert "  1  enter module 'enc.1'  hit 0 times" in listed and "  2  parameter 'head.bias'  hit 1 times" in listed
    assert "AccumulateGrad(head.bias)" in second and "step 0" in second
    assert "'head.bias'" not in cleared and "(disabled)" in cleared
    assert tb == "breakpoint 4: line train.py:10, if norm > 0"
    assert "in enc." in third and "train.py:10: h = self.enc(x)" in third and "breakpoint 4" in third
    assert "train.py:10" not in after
    assert "step 2" in end and "sum" in end
    assert "breakpoint 3 cannot stop in this backward: no node type fits 'NoSuch*'" in done.stderr
    assert "breakpoint 3 was never met: node 'NoSuch*'" in done.stderr
    assert done.returncode == 0


def test_python_at_the_prompt(tmp_path: Path) -> None:
    commands = [
        *("unt param head.weight", "p step", "p model.head.weight.grad", "grads[0].shape", "x = step + 41", "p x"),
        *("nosuch", "1/0", "module", "u", "u", "d", "d", "d", "!module = 3", "p node.parameter", "foo bar", "q"),
    ]
    done = debug(tmp_path, "\n".join(commands) + "\n")
    found = answers(done.stdout)[1:]
    assert "> before AccumulateGrad(head.weight)  in head" in found[0]
    assert found[1:4] == ["0", "None", "torch.Size([1, 8])"]
    assert found[4:6] == ["", "41"]
    assert found[6] == "NameError: name 'nosuch' is not defined ('help' lists the commands)"
    assert found[7] == "ZeroDivisionError: division by zero"
    # 'module' is a command here as m is: it steps
    assert "> before" in found[8]
    assert "nodes have run" in found[9]
    assert found[16].startswith("SyntaxError")


def test_replacing_a_gradient(tmp_path: Path) -> None:
    commands = [
        *("unt param head.bias", "replace 0.0", "replace torch.zeros(3)", "replace", "replace 1 0.0", "n"),
        *("p bool((model.head.bias.grad == 0).all())", "s", "s", "replace 0 lambda g: g * 2", "q"),
    ]
    done = debug(tmp_path, "\n".join(commands) + "\n")
    found = answers(done.stdout)[1:]
    assert found[1] == "  [0]  float32[1]  norm 0  from 0 to 0"
    assert "is float32[1]; the replacement is float32[3]: shape, dtype and device must agree" in found[2]
    assert found[3].startswith("replace what by what?")
    assert "has 1 gradients into it; there is no number 1" in found[4]
    assert found[6] == "True"
    assert found[9].startswith("  [0]  float32")


def test_an_exception_stops_inside(tmp_path: Path) -> None:
    done = debug(tmp_path, "g\nwhy\npdb\np reason\nq\nc\n", "-b", "NoSuch*", args=("fail",))
    assert "> exception FailsBackward" in done.stdout and "raised: ValueError: no gradient today" in done.stdout
    assert done.stderr.rstrip().splitlines()[-1] == "ValueError: no gradient today"
    assert "backprobe/engine" not in done.stderr
    assert "in  [0]  float32[4, 1]" in done.stdout
    assert "'no gradient today'" in done.stdout and "(Pdb)" in done.stdout
    assert done.returncode == 1


def test_quit_abort_and_the_end_of_input(tmp_path: Path) -> None:
    done = debug(tmp_path, "n\nq\n")
    assert done.returncode == 0 and "step 0 " not in done.stdout and done.stderr == ""
    done = debug(tmp_path, "n\nabort\n")
    assert done.returncode == 1 and "BackwardAborted: the backward was aborted before PowBackward0" in done.stderr
    done = debug(tmp_path, "n\n")
    assert done.returncode == 0 and "standard input has ended: no command can come any more; quitting" in done.stdout


def test_help_is_enough(tmp_path: Path) -> None:
    commands = sorted(COMMANDS)
    done = debug(tmp_path, "help\n" + "".join(f"help {c}\n" for c in commands) + "help nosuch\nhelp b\nq\n")
    found = answers(done.stdout)[1:]
    for command in commands:
        assert any(command.startswith(w.split("(")[0]) for w in found[0].replace(",", " ").split()), command
    for command, text in zip(commands, found[1:], strict=False):
        assert len(text) > 20 and "\n" in text + "\n", command
    assert "no command 'nosuch'; 'help' lists them" in found[len(commands) + 1]
    assert "module encoder.* [enter|leave]" in found[len(commands) + 2]


def test_commands_given_with_the_command(tmp_path: Path) -> None:
    done = debug(tmp_path, "", "-c", "p 40 + 2", "-c", "finish")
    assert done.returncode == 0
    assert "42" in done.stdout and "sum" in done.stdout


def test_a_script_that_reads_standard_input(tmp_path: Path) -> None:
    done = debug(tmp_path, "a line for the script\np x\nf\n", script="x = input()\n" + SCRIPT)
    assert "Commands are read from standard input, which is no terminal" in done.stdout
    assert "'a line for the script'" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--break", "at the end"), "'at the end' is no breakpoint; give a node type"),
        (("--break", "norm >"), "the condition 'norm >' is not a Python expression"),
    ],
)
def test_wrong_use(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    done = debug(tmp_path, "", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("backprobe: ") and text in done.stderr and "Traceback" not in done.stderr


def test_a_script_without_backward(tmp_path: Path) -> None:
    done = debug(tmp_path, "", script="import torch\nprint(torch.ones(2).sum())\n")
    assert done.returncode == 0 and "the script ended without a backward call" in done.stderr


def test_ctrl_c_stops_in_a_long_backward(tmp_path: Path) -> None:
    script = """\
import torch, time
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0
    @staticmethod
    def backward(ctx, g):
        ran.append(time.sleep(0.05))
        if len(ran) == 5:
            print("ready", flush=True)
        return g
ran = []
x = torch.ones(2, requires_grad=True)
y = x
for _ in range(4000):
    y = Slow.apply(y)
y.sum().backward()
print("over")
"""
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-u", "-m", "backprobe", "debug", "-b", "NoSuch*", "train.py"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate("p len(stop.ran) > 3\nq\n", timeout=600)
    assert "interrupted" in out and ("> before SlowBackward" in out or "> after SlowBackward" in out), (out, err)
    assert "True" in out and "over" not in out
    assert child.returncode == 0, err


def test_on_a_terminal_with_completion(tmp_path: Path) -> None:
    """A real terminal: readline completes, and output has colour."""
    (tmp_path / "train.py").write_text(SCRIPT)
    child, master = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "backprobe", "debug", "train.py"])
    seen = b""

    def read(until: bytes, key: bytes = b"") -> bytes:
        """Read the output up to and including `until`; press `key` whenever nothing arrives for five seconds."""
        nonlocal seen
        for _ in range(120):
            if until in seen:
                break
            if select.select([master], [], [], 5)[0]:
                seen += os.read(master, 4096)
            elif key:
                os.write(master, key)
        assert until in seen, seen
        found, until, seen = seen.partition(until)
        return found + until

    prompt = b"(backprobe) "
    first = read(prompt)
    assert b"\x1b[" in first and b"no terminal" not in first
    os.write(master, b"tbreak Native\t\n")
    assert b"NativeLayerNormBackward0" in read(b"breakpoint 1")
    read(prompt)
    os.write(master, b"\x03")
    # One that comes before readline waits is not seen while it waits: another one is.
    read(b"--KeyboardInterrupt--", key=b"\x03")
    read(prompt)
    os.write(master, b"c\n")
    assert b"NativeLayerNorm" in read(b"enc.1")
    read(prompt)
    os.write(master, b"q\n")
    read(b"q")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(master)
