"""Things in a script that are not what one expects: it runs as alone, they cost nothing but what is about them, and the
rest is found. Each beside a module with a mistake, in the same steps."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from watching import same, watched

import backprobe
from backprobe.observe.events import MAX_SHARED_FAULTS
from backprobe.observe.session import Settings
from backprobe.report.document import document, packed
from backprobe.torch_internals import modes
from backprobe.view.parts import report
from backprobe.view.terminal import write

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),
    pytest.mark.filterwarnings("ignore:.*torch.ao.quantization:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*quantiz:UserWarning"),
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
]
#: A step that is run again and again.
Step = Callable[[], list[Any]]
CASES: dict[str, Callable[[], Step]] = {}


def case(make: Callable[[], Step]) -> Callable[[], Step]:
    CASES[make.__name__] = make
    return make


def trained(model: Any, *given: Any, output: Callable[[Any], Any] = lambda out: out) -> Step:
    """Steps of training `model`, and its gradients."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> list[Any]:
        optimizer.zero_grad()
        output(model(*given)).square().mean().backward()
        optimizer.step()
        return [p.grad.clone() for p in model.parameters()]

    return step


def jagged(grad: bool = False) -> Any:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


@case
def scripted_container() -> Step:
    return trained(torch.jit.script(nn.Sequential(nn.Linear(2, 1))), torch.ones(3, 2))


@case
def scripted_part() -> Step:
    inner = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    return trained(nn.Sequential(nn.Linear(2, 2), inner), torch.ones(3, 2))


@case
def traced_model() -> Step:
    return trained(torch.jit.trace(nn.Sequential(nn.Linear(2, 1)), torch.ones(1, 2)), torch.ones(3, 2))


@case
def scripted_function() -> Step:
    function = torch.jit.script(lambda_of_torchscript)
    return trained(nn.Linear(2, 1), torch.ones(3, 2), output=function)


def lambda_of_torchscript(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


@case
def jagged_batches() -> Step:
    linear = nn.Linear(3, 2)

    def step() -> list[Any]:
        linear.zero_grad()
        linear(jagged()).sin().values().sum().backward()
        return [p.grad.clone() for p in linear.parameters()]

    return step


@case
def jagged_leaf_and_root() -> Step:
    linear = nn.Linear(3, 2)

    def step() -> list[Any]:
        linear.zero_grad()
        x = jagged(grad=True)
        y = linear(x) * 2
        y.backward(torch.ones_like(y))
        return [x.grad.values().clone(), *(p.grad.clone() for p in linear.parameters())]

    return step


@case
def nested_strided() -> Step:
    linear = nn.Linear(3, 2)

    def step() -> list[Any]:
        linear.zero_grad()
        x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
        torch.nested.to_padded_tensor(linear(x), 0.0).sum().backward()
        return [p.grad.clone() for p in linear.parameters()]

    return step


@case
def functional_gradients() -> Step:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def step() -> list[Any]:
        model.zero_grad()

        def loss(parameters: Any, x: Any) -> Any:
            return torch.func.functional_call(model, parameters, (x,)).square().mean()

        held = {k: v.detach() for k, v in model.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(held, torch.ones(4, 3))
        slope, along = torch.func.jvp(lambda x: model(x).sin(), (torch.ones(3),), (torch.ones(3),))
        jacobian = torch.func.vmap(torch.func.jacrev(lambda x: model(x).sin()))(torch.ones(4, 3))
        (slope.sum() + along.sum() + jacobian.square().sum()).backward()
        y = model(torch.ones(3)).expand(2).sin()
        several = torch.autograd.grad(y, list(model.parameters()), torch.eye(2), is_grads_batched=True)
        return [*each.values(), *several, *(p.grad.clone() for p in model.parameters())]

    return step


@case
def sparse() -> Step:
    table, weight = nn.Embedding(5, 3, sparse=True), torch.eye(3).to_sparse().requires_grad_()
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)

    def step() -> list[Any]:
        optimizer.zero_grad()
        weight.grad = None
        torch.sparse.mm(weight, table(torch.tensor([1, 2, 2]))).square().sum().backward()
        optimizer.step()
        return [table.weight.grad.clone(), weight.grad.clone()]

    return step


@case
def mkldnn() -> Step:
    x = torch.ones(1, 1, 8, 8, requires_grad=True)

    def step() -> list[Any]:
        x.grad = None
        torch.relu(x.to_mkldnn()).to_dense().sum().backward()
        return [x.grad.clone()]

    return step


@case
def quantised() -> Step:
    whole = torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.quint8)

    def fake(y: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(y, 0.1, 0, 0, 255) * whole.dequantize().sum()

    return trained(nn.Linear(3, 2), torch.ones(4, 3), output=fake)


@case
def meta() -> Step:
    step = trained(nn.Linear(3, 2, device="meta"), torch.ones(4, 3, device="meta"))
    return lambda: [tuple(g.shape) for g in step()]


@case
def fake() -> Step:
    with FakeTensorMode():
        model, x = nn.Linear(3, 2), torch.ones(4, 3)
    step = trained(model, x)
    return lambda: [tuple(g.shape) for g in step()]


@case
def wrapped_parameters() -> Step:
    linear = nn.Linear(3, 1)
    for name, p in list(linear.named_parameters()):
        setattr(linear, name, nn.Parameter(TwoTensor(p.detach().clone(), p.detach().clone())))
    step = trained(linear, torch.ones(2, 3))
    return lambda: [inner for g in step() for inner in (g.a, g.b)]


class Refuses(torch.Tensor):
    """A tensor of a class that will not be measured or shown."""

    @staticmethod
    def __new__(cls, inside: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in ("sin", "cos", "mul", "detach", "ones_like", "alias"):
            raise ValueError(f"no {name} of this")
        inside = [a.inside if isinstance(a, Refuses) else a for a in args]
        return Refuses(func(*inside, **(kwargs or {})))

    def __repr__(self) -> str:
        raise ValueError("not shown")


@case
def tensors_that_refuse() -> Step:
    def step() -> list[Any]:
        x = Refuses(torch.ones(2, 3)).requires_grad_()
        (x.sin() * 2).backward(Refuses(torch.ones(2, 3)))
        return [x.grad.inside]

    return step


class Proxy:
    """Raises whatever it is asked, as an object does that stands for one that is not there."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    __iter__ = __len__ = __bool__ = __repr__ = lambda self: self.missing  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("==")

    __hash__ = None  # type: ignore[assignment]

    @property
    def __class__(self) -> Any:
        raise RuntimeError("class")


class Odd(nn.Module):
    """A module that is no good as a value, and gives and holds things that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.kept = nn.Linear(3, 3), [Proxy()]

    def forward(self, x: torch.Tensor) -> Any:
        here = Proxy()
        return {"y": self.linear(x), "more": [here, Proxy], Odd: self.kept}

    def __len__(self) -> int:
        raise ValueError("len")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise RuntimeError(name) from None

    __bool__ = __iter__ = __repr__ = __len__

    def __eq__(self, other: object) -> bool:
        raise ValueError("==")

    __hash__ = nn.Module.__hash__


@case
def odd_modules_and_values() -> Step:
    odd, here = Odd(), Proxy()
    optimizer = torch.optim.SGD(odd.linear.parameters(), 0.1)

    def step() -> list[Any]:
        _ = here
        optimizer.zero_grad()
        odd(torch.ones(2, 3))["y"].square().mean().backward()
        optimizer.step()
        return [p.grad.clone() for p in odd.linear.parameters()]

    return step


class NoText(nn.Parameter):
    def __repr__(self) -> str:
        raise ValueError("no text")

    def __format__(self, spec: str) -> str:
        raise ValueError("no text")

    __str__ = __repr__


@case
def parameters_without_text() -> Step:
    model = nn.Linear(3, 3)
    model.weight = NoText(torch.ones(3, 3))
    return trained(model, torch.ones(2, 3))


@case
def code_of_no_file() -> Step:
    lines = "m.zero_grad()", "m(ones).sum().backward()", "return [p.grad.clone() for p in m.parameters()]"
    text = "def step():\n    " + "\n    ".join(lines)
    space: dict[str, Any] = {"m": nn.Linear(3, 3), "ones": torch.ones(2, 3)}
    exec(compile(text, "", "exec"), space)
    step = space["step"]
    step.__code__ = step.__code__.replace(co_firstlineno=1, co_linetable=b"", co_filename="/not/there\n.py")
    return step  # type: ignore[no-any-return]


@case
def transformed_models() -> Step:
    make = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    steps = [
        trained(torch.fx.symbolic_trace(make), torch.ones(3, 2)),
        trained(torch.export.export(make, (torch.ones(3, 2),)).module(), torch.ones(3, 2)),
    ]
    return lambda: [g for step in steps for g in step()]


@case
def containers_of_ones_own() -> Step:
    class Wrapper(dict):  # type: ignore[type-arg]
        def get(self, *given: Any) -> Any:
            raise RuntimeError("no get")

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model.__dict__["_modules"] = Wrapper(model._modules)
    model[0].__dict__["_parameters"] = Wrapper(model[0]._parameters)
    return trained(model, torch.ones(2, 3))


class Mistaken(nn.Module):
    """Trains a module that ``parameters()`` does not list."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden = nn.Linear(4, 6), [nn.Linear(6, 6)]

    def forward(self, x: torch.Tensor) -> Any:
        return self.hidden[0](self.first(x))


def settings(which: str) -> Settings:
    if which == "all":
        return Settings("full", checks=frozenset({"functions", "divergence", "memory"}), histograms=("*",))
    return Settings()


@pytest.mark.parametrize("asked", ["plain", "all"])
@pytest.mark.parametrize("name", CASES)
def test_an_unusual_object_does_not_hide_other_findings(name: str, asked: str) -> None:
    torch.manual_seed(0)
    step = CASES[name]()
    alone = [step() for _ in range(5)]
    torch.manual_seed(0)
    step = CASES[name]()
    mistaken = Mistaken()
    session, collector = watched(settings(asked))
    session.start()
    seen = []
    try:
        for _ in range(5):
            seen.append(step())
            mistaken(torch.ones(2, 4)).square().mean().backward()
            mistaken.first.zero_grad()
    finally:
        session.stop()
    assert same(alone, seen)
    assert session.error is None, session.error
    trace = collector.trace(session)
    assert "unregistered-parameter" in [f.kind for f in trace.findings]
    assert len(list(trace.backwards)) >= 10 or name in ("functional_gradients",)
    packed(document(trace))
    write(report(trace, details=True), io.StringIO())


def test_scripted_parameters_are_edited_and_named() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 1)))
    with backprobe.edit_gradients(model, "0.bias", backprobe.gradient_ops.zero) as log:
        model(torch.ones(3, 2)).sum().backward()
    assert log.total == 1 and not dict(model.named_parameters())["0.bias"].grad.any()


def test_frequent_failures_do_not_stop_other_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other call fails inside backprobe, more often than the limit at which watching stops if all calls fail."""
    from backprobe.observe.backward import call_record_builder

    calls, mistaken = 0, Mistaken()
    record = call_record_builder.root_record

    def failing(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise ZeroDivisionError("planted")
        return record(*given)

    monkeypatch.setattr(call_record_builder, "root_record", failing)
    session, collector = watched()
    session.start()
    try:
        for _ in range(MAX_SHARED_FAULTS + 10):
            torch.ones(2, requires_grad=True).sin().sum().backward()
            mistaken(torch.ones(2, 4)).square().mean().backward()
            mistaken.first.zero_grad()
    finally:
        session.stop()
    trace = collector.trace(session)
    assert trace.coverage.observed.stopped is None
    assert [u.count for u in trace.coverage.unseen if "planted" in u.note] == [MAX_SHARED_FAULTS + 10]
    assert "unregistered-parameter" in [f.kind for f in trace.findings]


class Doubles(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_that_are_taken_off_for_a_while_are_put_back() -> None:
    """Of the user's, above and below ours; a subclass is dispatched all the while."""
    ours, above = Doubles(), Doubles()
    with Doubles() as below:
        modes.put_dispatch_mode(ours)
        with above:
            assert modes.in_mode_of_others()
            with modes.hide_from_dispatch_modes():
                assert not modes.in_mode()
                two = TwoTensor(torch.ones(2), torch.ones(2))
                assert bool((two + 1 == 2).all())
            assert [*map(torch._C._get_dispatch_stack_at, range(3))] == [below, ours, above]
            modes.drop_dispatch_mode(ours)
            assert [*map(torch._C._get_dispatch_stack_at, range(2))] == [below, above]
    assert not modes.in_mode()
