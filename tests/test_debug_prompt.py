"""The prompt by itself: nothing that is typed ends the session but quit, and what its commands say."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.engine.prompt import Prompt
from backprobe.engine.prompt.command import COMMANDS, WORDS
from backprobe.source.frames import Frames

#: Commands that end the session or let the backward finish.
ENDS = {"quit", "finish", "abort"}
HOSTILE = (
    *(
        "",
        " ",
        "x",
        "-1",
        "0",
        "99999999999999999999",
        "0 0",
        "1.5",
        "float64",
        "\x00",
        "'",
        "(",
        "%s",
        "\udc80",
        "\u0661",
    ),
    *(
        "1/0",
        "raise KeyboardInterrupt",
        "grads[99]",
        "stop",
        "nan",
        "[",
        "bad",
        "bad.x",
        "if bad",
        "1 bad",
        "lambda g: bad.x",
    ),
)


class Bad:
    """Raises at whatever is asked of it, as its class says."""

    kind: type[BaseException] = ValueError

    def __getattr__(self, name: str):
        raise self.kind(f"no {name}")

    def __repr__(self) -> str:
        raise self.kind("no repr")

    __str__ = __repr__


class Worse(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def talk(monkeypatch, capsys, lines, run=None, **where) -> str:
    """Type `lines` at the first stop of a backward, then let it finish; return the output."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*lines, "f"]) + "\n"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with backprobe.breakpoint_backward(**where):
        (run or (lambda: x.exp().sin().sum().backward()))()
    said: str = capsys.readouterr().out
    assert "standard input has ended" not in said, said
    return said


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError])
def test_objects_that_raise_whatever_is_asked_of_them(kind, monkeypatch, capsys) -> None:
    bad = Bad()
    monkeypatch.setattr(Bad, "kind", kind)
    worse = Worse()
    lines = ["p bad", "bad", "pp bad", "p bad.x", "display bad", "replace bad", "!raise worse", "undisplay"]
    lines += ["import sys; sys.exit(4)", "raise SystemExit", "raise GeneratorExit", "p 40 + 2", "n"]
    said = talk(monkeypatch, capsys, lines, lambda: chain(bad, worse))
    assert "42" in said and "SystemExit" in said and "before SinBackward0" in said


def chain(bad, worse) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.exp().sin().sum().backward()


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - ENDS - {"pdb", "interact", "commands"}))
def test_every_command_with_hostile_arguments(name: str, monkeypatch, capsys) -> None:
    """Each is given again at every kind of stop; the session goes on to its end."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for arg in HOSTILE:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(f"{name} {arg}\n" + "cl 1 2 3\nf\n" * 9))
            with backprobe.breakpoint_backward():
                x.exp().sin().sum().backward(retain_graph=True)
    assert x.grad is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("exit()")
@example("f = exit")
@given(st.text(max_size=30) | st.tuples(st.sampled_from(sorted(WORDS)), st.text(max_size=12)).map(" ".join))
def test_any_line(line: str) -> None:
    word = line.strip().partition(" ")[0]
    found = WORDS.get(word)
    if "\n" in line or "\r" in line or (found and found.name in {*ENDS, "pdb", "interact", "commands"}):
        return
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    reader, old = io.StringIO(line + "\n" + "cl 1 2\nf\n" * 9), sys.stdin
    sys.stdin = reader
    try:
        with backprobe.breakpoint_backward():
            x.exp().sum().backward()
    except backprobe.BackprobeError as error:
        assert line == "exit()" and "aborted" in str(error)
        return
    finally:
        sys.stdin = old
    assert torch.equal(x.grad, x.detach().exp())


def test_a_condition_uses_variables_of_the_script(monkeypatch, capsys) -> None:
    seen = []

    def run() -> None:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        for epoch in range(5):
            x.exp().sum().backward()
            seen.append(epoch)

    said = talk(monkeypatch, capsys, ["p epoch"], run, place="ExpBackward0 if epoch == 3 and any(epoch for _ in 'a')")
    assert "(backprobe) 3" in said and said.count("> before") == 1


def test_condition_ignore_commands_and_display(monkeypatch, capsys) -> None:
    def run() -> None:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        for epoch in range(9):
            (x.exp().sum() * epoch).backward()

    lines = ["b ExpBackward0", "condition 1 epoch > 1", "ignore 1 2", "display epoch * 10", "commands 1", "silent"]
    lines += [
        "p 'at ' + str(epoch)",
        "end",
        "c",
        "condition 1 epoch == 7",
        "commands 1",
        "end",
        "c",
        "undisplay",
        "cl 1",
    ]
    said = talk(monkeypatch, capsys, lines, run)
    assert "breakpoint 1: node 'ExpBackward0', if epoch > 1" in said
    assert "epoch * 10: 40" in said and "'at 4'" in said and "epoch * 10: 70" in said
    assert "'at 5'" not in said and said.count("> before") == 2


def test_interact_keeps_assignments(monkeypatch, capsys) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    lines = iter(["y = 20", "y + 1"])

    def typed(prompt: str = "") -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("code.InteractiveConsole.raw_input", lambda self, prompt="": typed(prompt))
    said = talk(monkeypatch, capsys, ["interact", "p y * 2"], lambda: x.exp().sum().backward())
    assert "40" in said


def test_an_exception_shows_the_line_and_opens_there(monkeypatch, capsys) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            reason = "no gradient today"
            assert reason
            return torch.nn.functional.linear(g, torch.ones(3, 3))

    def run() -> None:
        with pytest.raises(RuntimeError):
            Fails.apply(x).sum().backward()

    said = talk(monkeypatch, capsys, ["why", "rerun", "pdb", "p reason", "c"], run, place="NoSuch*")
    assert "raised at " in said and "in backward: return torch.nn.functional.linear" in said
    assert "'no gradient today'" in said


def test_why_at_a_value_that_is_not_finite(monkeypatch, capsys) -> None:
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    lines = ["why", "n", "why", "cl 1"]
    said = talk(monkeypatch, capsys, lines, lambda: (x.sqrt() * 1.0).mul(2).sum().backward(), when="nonfinite")
    assert "SqrtBackward0 made 1 values that are not finite, of gradients that are" in said
    assert "saved result" in said and "1 zeros" in said
    assert "not made here" in said and "came from  SqrtBackward0" in said


class Spread(nn.Module):
    """Takes the logarithm of what may be below zero, several ops before anything meets the result."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        h = torch.log(x * 2)  # the first
        h = h + 1
        return (h * self.scale).tanh()


@pytest.mark.parametrize(
    "where",
    [
        {"when": "nonfinite"},  # a node makes it, of a saved NaN
        {"place": "MulBackward0"},  # it comes in
        {"place": "TanhBackward0"},  # all gradients are finite
    ],
)
def test_why_follows_a_saved_nan_to_the_op_that_made_it(monkeypatch, capsys, where: dict[str, str]) -> None:
    model = Spread()
    x = torch.tensor([1.0, -1.0, 2.0], requires_grad=True)

    def run() -> None:
        with backprobe.trace(model):
            model(x).sum().backward()

    said = talk(monkeypatch, capsys, ["why", "cl 1", "c"], run, **where)
    assert "the forward op of LogBackward0 made the first value that is not finite" in said
    assert "h = torch.log(x * 2)  # the first" in said
    assert "1 NaN of 3" in said
    assert "every value is finite" not in said


def test_why_names_a_leaf_that_was_not_finite(monkeypatch, capsys) -> None:
    w = torch.tensor([1.0, float("inf")], requires_grad=True)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    said = talk(monkeypatch, capsys, ["why", "cl 1", "c"], lambda: (w * x).sin().sum().backward(), place="MulBackward0")
    assert "saved other" in said or "saved self" in said
    assert "belongs to a leaf that is not finite itself" in said


def test_typos_are_reported(capsys) -> None:
    with pytest.raises(TypeError, match="no argument 'modul'; did you mean 'module'"):
        backprobe.breakpoint_backward(modul="a")
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with backprobe.breakpoint_backward(node="AddmBackward0", action=lambda stop: None) as points:
        points.add(module="2")
        for _ in range(2):
            model(torch.randn(4, 2)).sum().backward()
    said = capsys.readouterr().err
    assert said.count("breakpoint 1 cannot stop in this backward: no node type fits 'AddmBackward0'") == 1
    assert "AddmmBackward0" in said and said.count("breakpoint 2") == 1


def test_args_and_whatis(monkeypatch, capsys) -> None:
    def train_step(x, scale=2.0, *rest, **options):
        y = (x * scale).exp()
        del rest
        y.sum().backward()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    lines = ["args", "whatis x", "whatis y", "whatis x.data", "whatis [1, 2]", "whatis train_step", "whatis", "f"]
    said = talk(
        monkeypatch,
        capsys,
        lines,
        lambda: train_step(x, 0.5, 3, model=nn.Linear(2, 3)),
        node="ExpBackward0",
    )
    assert "x = float32[2]  norm 2.236  from 1 to 2" in said and "scale = 0.5" in said
    assert "rest was deleted" in said and "options = {'model': Linear(" in said
    assert "torch.Tensor  [2], torch.float32, cpu; a leaf that requires a gradient" in said
    assert "torch.Tensor  [2], torch.float32, cpu; made by ExpBackward0" in said
    assert "torch.Tensor  [2], torch.float32, cpu; no graph" in said
    assert "list with 2 elements" in said
    assert "whatis shows the type of an expression: whatis grads[0]" in said


def test_help_completes_the_names_of_commands() -> None:
    prompt = Prompt(Frames())
    assert prompt.matches("bre", "help bre", 5) == ["break"]
    assert set(prompt.matches("", "h ", 2)) == set(COMMANDS)


def test_ll_shows_the_function(monkeypatch, capsys) -> None:
    def forward(x):
        first = x.exp()
        return first.sin()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    said = talk(monkeypatch, capsys, ["ll", "pp {'a': 1}"], lambda: forward(x).sum().backward(), place="ExpBackward0")
    assert "def forward(x):" in said and "->         first = x.exp()" in said and "{'a': 1}" in said


def test_a_notebook_gets_tables_and_escaped_text() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    dbg = backprobe.debug(x.exp().sum())
    dbg.until("ExpBackward0", phase="after", when="norm < 1e9")
    shown = dbg._repr_html_()
    assert shown.startswith("<pre>") and "ExpBackward0" in shown and "norm &lt; 1e9" in shown
    rerun = dbg.rerun(dtype=torch.float64)
    assert "<table>" in rerun._repr_html_() and "float64[2]" in rerun._repr_html_() and "tensor(" not in str(rerun)
    stop = dbg.stop
    dbg.finish()
    assert "over" in dbg._repr_html_() and "ExpBackward0" in stop._repr_html_()
    replay = backprobe.replay(x.exp().sum(), dtype=torch.float64)
    replay.finish()
    assert "<th>off by</th>" in replay.compare()._repr_html_()


def test_a_cell_is_called_by_its_number(monkeypatch) -> None:
    import types

    from backprobe.engine.show import nearby
    from backprobe.records import Site
    from backprobe.records.places import short_path
    from backprobe.report.tables import Sites

    shell = types.SimpleNamespace(compile=types.SimpleNamespace(_filename_map={"/tmp/kernel/12.py": 3}))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert nearby("/tmp/kernel/12.py") == short_path("/tmp/kernel/12.py") == "Cell In[3]"
    sites = Sites("/tmp")
    sites.of(Site("/tmp/kernel/12.py", 5, "<module>"))
    assert sites.rows()[0]["file"] == "Cell In[3]"


def test_wrong_arguments_give_torchs_error_alone() -> None:
    loss = torch.ones(2, requires_grad=True).sum()
    with pytest.raises(TypeError, match="unexpected keyword argument 'stop'") as caught:
        backprobe.debug(loss, stop="SumBackward0")
    assert caught.value.__context__ is None


def test_back_in_an_ordinary_run(tmp_path) -> None:
    import subprocess

    script = "import torch\nx = torch.ones(2, requires_grad=True)\nx.exp().sum().backward()\nprint(x.grad.tolist())\n"
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "backprobe", "debug", "--retain", "train.py"]
    typed = "n\nn\nback\nreplace 2.0\nf\n"
    done = subprocess.run(command, input=typed, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("before ExpBackward0") == 2 and "[5.43656" in done.stdout


def test_a_backward_in_another_thread_is_announced(tmp_path) -> None:
    import subprocess

    script = """\
import threading, torch
layer = torch.nn.Linear(2, 1)
thread = threading.Thread(target=lambda: layer(torch.ones(3, 2)).sum().backward())
thread.start()
thread.join()
"""
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "backprobe", "debug", "train.py"]
    done = subprocess.run(command, input="", capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0
    assert "1 module calls ran in other threads: a backward there does not stop" in done.stderr
