"""Comparison with float64: the rounding error that one op may have, and values that are only rounding errors."""

from __future__ import annotations

from math import inf, isnan

import pytest
import torch
from torch import nn

import backprobe
from backprobe.commands.compare import judge_of
from backprobe.comparing.blame import WRONG
from backprobe.comparing.compared import Compared, compare
from backprobe.comparing.files import read_tape, tape_folder
from backprobe.comparing.itself import departs
from backprobe.float64.fingerprints import print_of, values_of
from backprobe.float64.ops import Opaque, function
from backprobe.float64.single_op import Alone
from backprobe.observe.op_record.arguments import as_json
from backprobe.records import Applied, Judged, Print, Taken, Tape, TapeOp


def off(name: str, args: list, out: torch.Tensor, k: int = 0, flags: dict | None = None, keep: bool = True):
    """As ``Alone`` has it of an op that was called with `args`, and gave `out`."""
    given: list[torch.Tensor] = []

    def tensor(one: torch.Tensor) -> int:
        given.append(one)
        return len(given) - 1

    tree = [as_json(one, tensor) for one in args]
    prints = tuple(print_of(values_of(one)) for one in (*given, out))
    outputs = (*[None] * k, len(given))
    taken = tuple(Taken(i, 0, -1 - i) for i in range(len(given)))
    op = TapeOp(0, 0, "forward", name, "", arguments=(tree, {}), inputs=taken, outputs=outputs)
    tape = Tape({"flags": flags or {}}, ({"step": 0},), {}, (op,), prints)

    def recorded(_: Tape, value: int | None) -> torch.Tensor | None:
        one = given[value] if value is not None and keep else None
        return one.double() if one is not None and one.is_floating_point() else one

    return Alone(recorded, torch.Generator().manual_seed(0)).off(tape, op, k)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


CALLS = {
    "tanh": lambda: [drawn(64, 512)],
    "rsqrt": lambda: [drawn(64, 512).square() + 0.1],
    "mm": lambda: [drawn(8, 2048), drawn(2048, 8, seed=1)],
    "bmm": lambda: [drawn(4, 8, 64), drawn(4, 64, 8, seed=1)],
    "sum": lambda: [drawn(100_000)],
    "mean.dim": lambda: [drawn(8, 10_000) + 1, [1]],
    "_softmax": lambda: [drawn(16, 1000), -1, False],
    "native_layer_norm": lambda: [drawn(16, 256), [256], None, None, 1e-5],
    "addcdiv": lambda: [drawn(512), drawn(512, seed=1), drawn(512, seed=2).abs() + 0.1],
    "convolution": lambda: [drawn(2, 8, 9, 9), drawn(4, 8, 3, 3, seed=1), None, [1, 1], [0, 0], [1, 1], False, [0], 1],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_correct_kernels_are_explained_and_inaccurate_ones_are_not(name, dtype) -> None:
    args = [one.to(dtype) if isinstance(one, torch.Tensor) else one for one in CALLS[name]()]
    base, _, overload = name.partition(".")
    out = getattr(getattr(torch.ops.aten, base), overload or "default")(*args)
    out = out if isinstance(out, torch.Tensor) else out[0]
    right = off(name, args, out)
    assert right < 1.0
    terms = {"mm": 2048, "bmm": 64, "sum": 100_000, "mean.dim": 10_000, "convolution": 72}.get(base, 1)
    terms = {"_softmax": 1000, "native_layer_norm": 256, "mean": 10_000}.get(base, terms)
    rough = 40 * terms**0.5 * torch.finfo(dtype).eps
    spread = args[0].float().norm() if name == "sum" else 0.0  # what cancels counts
    wrong = (out.double() * (1 + rough) + rough * spread).to(dtype)
    assert off(name, args, wrong) > WRONG * max(1.0, right)


def test_cancelling_sums_may_have_any_relative_error() -> None:
    x = drawn(50_000)
    x = torch.cat((x, -x))
    assert float(x.double().sum()) == 0.0
    assert off("sum", [x], torch.tensor(1e-4)) < 1.0
    assert off("sum", [x], torch.tensor(10.0)) > WRONG


def test_gradients_of_a_convolution_are_explained_without_that_of_the_input() -> None:
    args = [drawn(4, 6, 8, 8), drawn(4, 3, 8, 8), drawn(6, 3, 3, 3), [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    args.append([False, True, True])
    _, weight, bias = torch.ops.aten.convolution_backward(*args)
    # Results that are not there are not among those of the record.
    assert off("convolution_backward", args, weight) < 1.0
    assert off("convolution_backward", args, weight * (1 + 1e-3)) > WRONG
    assert off("convolution_backward", args, bias, k=1) < 1.0


def test_the_requested_precision_is_tolerated() -> None:
    args = [drawn(64, 64), drawn(64, 64, seed=1)]
    rough = (args[0].bfloat16().float()) @ args[1].bfloat16().float()
    assert off("mm", args, rough) > WRONG
    assert off("mm", args, rough, flags={"float32 matmul precision": "medium"}) < 1.0


def test_losses_of_half_precision_are_not_explained_as_rounding() -> None:
    assert off("_to_copy", [torch.tensor(1e-8)], torch.tensor(0.0, dtype=torch.float16)) > WRONG
    assert off("_to_copy", [torch.tensor(1e5)], torch.tensor(inf, dtype=torch.float16)) == inf
    assert off("_to_copy", [torch.tensor(inf)], torch.tensor(inf, dtype=torch.float16)) is None


def test_ops_that_cannot_run_again_or_were_not_stored_are_distinguished() -> None:
    assert off("tanh", [drawn(3)], drawn(3), keep=False) is None
    assert isnan(off("nobody::has", [drawn(3)], drawn(3), keep=False))
    assert isnan(off("nobody::has", [drawn(3)], drawn(3)))


@pytest.mark.parametrize(
    "name",
    [
        "from_file",
        "save",
        "aten::save",
        "manual_seed",
        "warn",
        "set_grad_enabled",
        "prim::Print",
        "add.__init__",
        "__class__",
        "_print",
    ],
)
def test_an_untrusted_recording_calls_only_pure_computations(name) -> None:
    with pytest.raises(Opaque):
        function(name)


def pair(folder, run) -> Compared:
    places = []
    for bad in (False, True):
        places.append(folder / str(bad))
        with backprobe.trace(record_ops=places[-1]):
            torch.manual_seed(0)
            run(bad)
    return compare(*map(read_tape, places), judge_of(*map(tape_folder, places)))


def train(model: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def test_gradients_that_are_only_rounding_are_not_blamed(tmp_path) -> None:
    """The gradient of a bias before a batch norm is 0; the computed value is rounding that depends on the kernel."""

    def run(bad: bool) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
        if bad:
            model.to(memory_format=torch.channels_last)
        train(model, torch.randn(6, 3, 8, 8))

    found = pair(tmp_path, run)
    assert found.verdict == "rounding" and found.different, found.blame


def test_masks_and_indices_that_are_floats_are_not_moved(tmp_path) -> None:
    """A count that is a float, cut to an index, is that index in the pass that is moved too: a change is found."""

    def run(bad: bool) -> None:
        model = nn.Linear(4, 6)
        places = torch.arange(5).float().sqrt().square().round().long()
        mask = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
        x = torch.randn(5, 4)
        model(x[places] * (mask == 1.0).float()[:4] * (1.0001 if bad else 1.0)).square().mean().backward()

    found = pair(tmp_path, run)
    assert found.blame is not None and found.blame.kind == "arguments" and found.blame.a.name == "mul.Tensor"


def test_an_earlier_write_to_memory_that_is_filled_in_parts_is_found(tmp_path) -> None:
    def run(bad: bool) -> None:
        model, x = nn.Linear(4, 6), torch.randn(5, 4)
        h, cache = model(x), torch.zeros(5, 6)
        for i in range(5):
            cache[i] = h.detach()[i] if i != 2 or not bad else h.detach()[i - 1]
        (h + cache).square().mean().backward()

    found = pair(tmp_path, run)
    assert found.blame is not None and found.blame.kind == "arguments"
    assert (found.blame.a.name, found.blame.a.arguments[0][2], found.blame.b.arguments[0][2]) == ("select.int", 2, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_scale_that_is_off_by_one_in_a_hundred_is_named(tmp_path, dtype) -> None:
    def run(bad: bool) -> None:
        model, x = nn.Linear(4, 6).to(dtype), torch.randn(5, 4).to(dtype)
        h = model(x)
        if bad:
            h = h * 1.01
        h.float().square().mean().backward()

    found = pair(tmp_path, run)
    assert found.blame is not None and found.blame.kind == "structure" and found.blame.b.name == "mul.Tensor"


def test_a_constant_of_fewer_digits_is_rounding(tmp_path) -> None:
    def run(bad: bool) -> None:
        scale = torch.tensor(0.1, dtype=torch.bfloat16 if bad else torch.float32)
        model, x = nn.Linear(4, 6), torch.randn(5, 4)
        (model(x) * scale).square().mean().backward()

    assert pair(tmp_path, run).verdict == "rounding"


def test_below_the_range_of_float32_zero_is_explained() -> None:
    small = drawn(64) * 1e-30
    args = [small, 1e-12]
    assert off("mul.Tensor", args, small * 1e-12) < 1.0
    assert off("mul.Tensor", args, torch.zeros(64)) < 1.0
    double = drawn(4096).double() * 1e-163  # whose squares, of which norms are made, are zero in float64
    assert off("mul.Tensor", [double, 3.0], double * 3.0) < 1.0
    half = (drawn(64) * 1e-4).half()
    assert off("mul.Tensor", [half, half], half * half) > WRONG


def one_op(norm: float | None, bad: int = 0) -> Tape:
    """A tape of two ops and a gradient, with what the second gave."""
    prints = (Print((4,), "float16", "x", 1.0), Print((4,), "float16", "y", norm, bad))
    ops = (
        TapeOp(0, 0, "forward", "mul.Tensor", "a", inputs=(Taken(0, 0, -1),), outputs=(0,)),
        TapeOp(1, 0, "forward", "sub.Tensor", "b", inputs=(Taken(0, 0, 0),), outputs=(1,)),
        TapeOp(2, 0, "forward", "exp", "c", inputs=(Taken(0, 0, 0),), outputs=(1,)),
        TapeOp(3, 0, "sink", "gradient", "w", inputs=(Taken(1, 1, 0),)),
    )
    return Tape({}, ({"step": 0},), {}, ops, prints)


def judgement(local: dict, away: dict | None = None, lost: set | None = None) -> Judged:
    return Judged({}, {}, {}, {}, (local, {}), ({}, {}), away or {}, lost or set())


def test_the_first_op_that_departs_from_float64() -> None:
    told = lambda found: (found.op.index, found.kind)  # noqa: E731
    assert departs(one_op(1.0), judgement({(1, 0): WRONG * 0.9})) is None
    assert told(departs(one_op(1.0), judgement({(1, 0): WRONG * 1.1}))) == (1, "kernel")
    assert told(departs(one_op(None, 1), judgement({(1, 0): inf}))) == (1, "overflow")
    lost = departs(one_op(1.0), judgement({(1, 0): 0.5}, {(1, 0): 0.7}, {(1, 0)}))
    assert told(lost) == (1, "lost") and lost.error == 0.7 and "cancels" in lost.what and "float16" in lost.what
    assert told(departs(one_op(0.0), judgement({}, {(1, 0): 1.0}, {(1, 0)}))) == (1, "underflow")
    # Nothing that comes out is made of the third op.
    assert departs(one_op(1.0), judgement({(2, 0): 9.0}, {(2, 0): 1.0}, {(2, 0)})) is None


def test_a_function_is_named_where_its_node_runs() -> None:
    one = Applied("F", (0,), (Taken(0, 0, -1),), (1,), (0,), 9, None)
    found = departs(one_op(1.0), judgement({}), [(one, WRONG * 2, 0.5)])
    assert found is not None and (found.kind, found.order, found.error) == ("function", 9, 0.5)
    assert departs(one_op(1.0), judgement({}), [(one, 1.0, 0.01)]) is None
    first = departs(one_op(1.0), judgement({(1, 0): 9.0}), [(one, WRONG * 2, 0.5)])
    assert first is not None and first.op.index == 1
