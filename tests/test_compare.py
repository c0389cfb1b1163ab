"""Recording real models to be compared, fingerprints against an oracle, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from watching import same as equal

import backprobe
from backprobe.commands import main
from backprobe.commands.compare import judge_of
from backprobe.comparing.compared import compare
from backprobe.comparing.estimate import distance
from backprobe.comparing.files import read_tape, tape_folder
from backprobe.float64.fingerprints import digest, plain, print_of, values_of
from backprobe.records import Tape


class Net(nn.Module):
    def __init__(self, slope: float = 0.01, eps: float = 1e-5) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 8), nn.LayerNorm(8, eps), nn.Linear(8, 2)
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.leaky_relu(self.norm(self.a(x)), self.slope)
        return self.b(torch.dropout(h, 0.1, True))


def train(steps: int = 2, dtype: torch.dtype = torch.float32, **settings) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Net(**settings).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for _ in range(steps):
        x = torch.randn(6, 4).to(dtype)
        model(x).square().mean().backward()
        found += [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *(p.detach().clone() for p in model.parameters()), torch.get_rng_state()]


def recorded(folder, **settings) -> Tape:
    with backprobe.trace(record_ops=folder):
        train(**settings)
    return read_tape(folder)


def judged(a, b):
    return compare(read_tape(a), read_tape(b), judge_of(tape_folder(a), tape_folder(b)))


def test_recording_changes_nothing(tmp_path) -> None:
    alone = train(4)
    with backprobe.trace(record_ops=tmp_path / "run") as trace:
        seen = train(4)
    assert trace.session.error is None
    assert equal(alone, seen)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_the_first_three_steps_are_recorded_or_those_that_are_asked_for(tmp_path) -> None:
    with backprobe.trace(record_ops=tmp_path / "three"):
        train(5)
    assert [step["step"] for step in read_tape(tmp_path / "three").steps] == [0, 1, 2]
    with backprobe.trace(record_ops=tmp_path / "later", steps=(3, 4)):
        train(5)
    assert [step["step"] for step in read_tape(tmp_path / "later").steps] == [3]


def test_ops_have_their_module_line_node_and_where_tensors_come_from(tmp_path) -> None:
    tape = recorded(tmp_path)
    norm = next(op for op in tape.ops if op.name == "native_layer_norm")
    assert norm.module == "norm" and norm.phase == "forward" and "self.norm(self.a(x))" in norm.site.text
    before = tape.ops[norm.inputs[0].op]
    assert before.name == "addmm" and before.module == "a"
    back = next(op for op in tape.ops if op.name == "native_layer_norm_backward")
    assert (back.module, back.phase, back.node) == ("norm", "backward", "NativeLayerNormBackward0")
    assert back.site == norm.site
    assert {op.module for op in tape.ops if op.name == "gradient"} == {n for n, _ in Net().named_parameters()}
    assert tape.steps[0]["modules"]["norm"]["eps"] == 1e-5 and "a.weight" in tape.start


def test_equal_runs_are_identical(tmp_path) -> None:
    recorded(tmp_path / "a"), recorded(tmp_path / "b")
    found = judged(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "identical" and found.before == [] and found.different == 0


@pytest.mark.parametrize(
    ("change", "op", "module"),
    [({"slope": 0.02}, "leaky_relu", ""), ({"eps": 1e-6}, "native_layer_norm", "norm")],
)
def test_a_change_is_named_and_a_setting_is_said_before(tmp_path, change, op, module) -> None:
    recorded(tmp_path / "a"), recorded(tmp_path / "b", **change)
    found = judged(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "differs" and found.blame.kind == "arguments"
    assert (found.blame.a.name, found.blame.a.module) == (op, module)
    assert any(next(iter(change)) in line for line in found.before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_is_rounding(tmp_path, dtype) -> None:
    recorded(tmp_path / "a"), recorded(tmp_path / "b", dtype=dtype)
    found = judged(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "rounding", found.blame
    assert any("dtype of weights" in line for line in found.before)
    assert found.drift


def test_a_wrong_kernel_is_named(tmp_path) -> None:
    """An op of the script's own that cannot be called again, and does not give the same."""
    off = [0.0]
    with torch.library._scoped_library("backprobe_test", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * (2 + off[0]), "CPU")
        for number in range(2):
            off[0] = number * 1e-3
            with backprobe.trace(record_ops=tmp_path / str(number)):
                torch.manual_seed(0)
                weight = torch.randn(4, 4)
                out = torch.ops.backprobe_test.double(weight) @ weight
                out.sum().item()
    found = judged(tmp_path / "0", tmp_path / "1")
    assert found.blame is not None and found.blame.kind == "kernel"
    assert found.blame.a.name == "backprobe_test::double"


TENSORS = [
    torch.randn(7, 5, generator=torch.Generator().manual_seed(0)),
    torch.randn(3, 70_000, generator=torch.Generator().manual_seed(1)),
    torch.arange(40).view(5, 8).t(),
    torch.randn(6, 6, dtype=torch.complex64, generator=torch.Generator().manual_seed(2)),
    torch.ones(3, dtype=torch.bool),
    torch.zeros(0, 4),
    torch.tensor(2.5, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}-{tuple(t.shape)}")
def test_fingerprints_do_not_depend_on_the_layout(tensor) -> None:
    one = print_of(values_of(tensor))
    other = tensor.t().contiguous().t() if tensor.dim() == 2 else tensor.clone()
    assert plain(tensor) and print_of(values_of(other)) == one
    assert one.shape == tuple(tensor.shape)
    if tensor.numel() and not tensor.is_complex():
        assert one.norm == pytest.approx(float(tensor.double().norm()), rel=1e-6)
    if tensor.numel() > 1 and tensor.is_floating_point():
        moved = tensor.clone()
        moved.view(-1)[1] = torch.nextafter(moved.view(-1)[1], torch.tensor(99.0))
        assert digest(values_of(moved)) != one.hash


@pytest.mark.parametrize("size", [33, 65_536, 70_000, 200_000])
@pytest.mark.parametrize("step", [1e-6, 1e-2])
def test_the_distance_of_sketches_is_that_of_tensors(size, step) -> None:
    draw = torch.Generator().manual_seed(size)
    errors = []
    for _ in range(8):
        x = torch.randn(size, generator=draw, dtype=torch.float64)
        y = x + step * torch.randn(size, generator=draw, dtype=torch.float64)
        one, two = print_of(x), print_of(y)
        true = float((x - y).norm() / max(x.norm(), y.norm()))
        errors.append(distance(one.sketch, two.sketch, one.norm, two.norm) / true)
    assert all(0.4 < e < 1.8 for e in errors) and 0.8 < sum(errors) / len(errors) < 1.2


def test_values_that_are_not_finite_are_counted() -> None:
    one = print_of(torch.tensor([1.0, float("nan"), float("inf")]))
    assert one.bad == 2 and one.norm is None and one.sketch == ()


SCRIPT = """
import os
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    out = model(torch.randn(5, 4))
    if os.environ.get("DOUBLE"):
        out = out * 2
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def command(folder, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "backprobe", *args], capture_output=True, text=True, timeout=600, cwd=folder
    )


@pytest.mark.slow
def test_both_runs_are_made(tmp_path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = command(tmp_path, "compare", "--json", "--", "train.py", "--vs", "--env", "DOUBLE=1")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["blame"]["b"]["op"] == "mul.Tensor" and found["blame"]["b"]["text"] == "out = out * 2"
    done = command(tmp_path, "compare", "--", "train.py", "--vs", "--dtype", "float64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The same but for rounding" in done.stdout
    done = command(tmp_path, "compare", "--", "train.py", "--vs", "--seed", "1")
    assert done.returncode == 1 and "random numbers" in done.stdout


@pytest.mark.slow
def test_the_folder_may_precede_the_script_and_comparing_needs_no_torch(tmp_path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = command(tmp_path, "run", "--quiet", "--record-ops", "A/", "train.py")
    assert done.returncode == 0 and (tmp_path / "A" / "compare" / "about.json").exists(), done.stderr
    text = (
        "import sys\nfrom backprobe.commands import main\n"
        "code = main(['compare', '--estimate', 'A', 'A'])\nassert 'torch' not in sys.modules\nsys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0 and "Identical" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["compare", "A"], "name two runs to compare"),
        (["compare", "--map", "(=x", "A", "B"], "is no regular expression"),
        (["compare", "--map", "x", "A", "B"], "it is OLD=NEW"),
        (["compare", "A", "B"], "has nothing to compare"),
        (["compare", "--", "train.py", "--vs"], "--vs says how the second run differs"),
        (["compare", "--", "train.py", "--vs", "--env", "X"], "it is NAME=VALUE"),
        (["compare", "--", "train.py", "--vs", "--wat"], "unrecognized arguments"),
        (["compare", "--", "--vs", "--seed", "1"], "name a script to run"),
        (["run", "--record-ops", "--no-keep", "train.py"], "leave out --no-keep"),
    ],
)
def test_wrong_use_is_reported(args, said, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [("dtype=int8", "no dtype of floats"), ("seed=x", "whole number"), ("wat=1", "no change 'wat'")],
)
def test_a_change_without_effect_is_reported(given, said) -> None:
    from backprobe.observe.overrides import change

    with pytest.raises(backprobe.BackprobeError, match=said):
        change([given])


def test_changes_are_undone() -> None:
    from backprobe.observe.overrides import change

    before = torch.manual_seed, nn.Module.__call__
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    plain_ = model(x)
    undo = change(["dtype=float64", "seed=3"])
    out = model(x)
    assert model.weight.dtype is torch.float64 and out.dtype is torch.float32
    torch.testing.assert_close(out, plain_)
    torch.manual_seed(0)
    drawn = torch.rand(2)
    undo()
    assert (torch.manual_seed, nn.Module.__call__) == before
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2), drawn)


class Loss(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.smooth_l1_loss(x, torch.zeros_like(x))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y + Scale()(y)


class Scale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_names_are_those_that_all_else_goes_by(tmp_path) -> None:
    """Of weights that are used before there is a second outermost module, of modules beside the model, and of one that
    is made in the forward."""
    with backprobe.trace(record_ops=tmp_path) as trace:
        body, head, criterion = Outer(), nn.Linear(3, 2), Loss()
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        for _ in range(2):
            criterion(head(body(torch.randn(5, 4)))).backward()
            optimizer.step()
            optimizer.zero_grad()
    tape = read_tape(tmp_path)
    names = {one.name for one in trace.parameters}
    assert names == {"body.inner.weight", "body.inner.bias", "head.weight", "head.bias"}
    assert {op.module for op in tape.ops if op.phase == "sink"} == names
    assert {one.name for op in tape.ops for one in op.inputs if one.name} == names and set(tape.start) <= names
    assert {op.node.partition(" ")[2] for op in tape.ops if "AccumulateGrad" in op.node} == names
    nodes = {run.name: run.module for run in trace.steps[1].backwards[0].nodes}
    for op, node in (("mul.Tensor", "MulBackward0"), ("smooth_l1_loss", "SmoothL1LossBackward0")):
        (module,) = {one.module for one in tape.ops if one.name == op}
        assert module == nodes[node]
    assert {one.module for one in tape.ops if one.name == "mul.Tensor"} == {"body"}
    assert set(tape.steps[1]["modules"]) >= {"body", "body.inner", "head", "criterion"}


def test_recorded_steps_have_their_loss(tmp_path) -> None:
    def losses(**settings) -> list[float | None]:
        with backprobe.trace(budget=None, **settings) as trace:
            train(4)
        return [step.loss for step in trace.steps]

    alone = losses()
    assert None not in alone and losses(record_ops=tmp_path) == alone


class Quiet(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_under_a_mode_of_the_users_no_loss_is_read(tmp_path) -> None:
    with backprobe.trace(record_ops=tmp_path) as trace, Quiet():
        train(1)
    assert [step.loss for step in trace.steps] == [None]


def test_a_forward_alone_is_compared(tmp_path) -> None:
    """No loss, gradient or weight comes out: what nothing takes does."""
    for name, slope in (("a", 0.1), ("b", 0.1 + 1e-6)):
        torch.manual_seed(0)
        model = Net(slope)
        with backprobe.trace(record_ops=tmp_path / name), torch.no_grad():
            model(torch.ones(6, 4))
    found = judged(tmp_path / "a", tmp_path / "b")
    assert found.blame is not None and found.blame.a.name == "leaky_relu"
