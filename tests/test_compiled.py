"""``torch.compile``: graph breaks are observed, our own functions are not compiled, and limits inside compiled code are
reported."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compiling import dynamo, reset_dynamo
from torch import nn

import backprobe
from backprobe.records import Unseen
from backprobe.report.document import document
from backprobe.torch_internals import compiled_graphs, overheads

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("fresh_dynamo")]
BACKENDS = ("eager", "aot_eager")


class Breaks(nn.Module):
    """Runs in Python where it is compiled: Dynamo gives up a loop with a break of the graph in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            dynamo.graph_break()
            x = x.sin().cos().tan().exp().log().abs().sqrt().tanh().sigmoid().square()
        return x


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), Breaks())


def compiled_step(model: nn.Module, backend: str) -> Callable[[], Any]:
    """A whole step, with the backward in it."""

    def step() -> Any:
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        return loss.detach()

    return torch.compile(step, backend=backend)


def grads(model: nn.Module) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def compiled_frames() -> int:
    return int(dynamo.utils.counters["frames"]["total"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", ["parameter", "output", "node"])
def test_edits_of_the_parts_that_run_in_python(where: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each time, more often than the recompile limit allows to compile anew."""
    model = made()
    step = compiled_step(model, backend)
    select = {"parameter": "*", "output": "3", "node": "Sigmoid*"}[where]
    for _ in range(10):
        subject, zero = None if where == "node" else model, backprobe.gradient_ops.zero
        with backprobe.edit_gradients(subject, select, zero, where=where) as log:
            step()
        assert log.total > 0 and log.backwards == 1 and not log.unused
        assert not any(g.any() for g in grads(model))
    assert "recompile_limit" not in caplog.text


@pytest.mark.parametrize("watch", [backprobe.trace, backprobe.capture, None])
def test_our_own_functions_are_not_compiled(watch: Any) -> None:
    """Dynamo looks at no more functions than alone, and the gradients are those of the script alone."""
    model = made()
    step = compiled_step(model, "aot_eager")
    step()
    alone, expected = compiled_frames(), grads(model)
    reset_dynamo()
    model = made()
    step = compiled_step(model, "aot_eager")
    with watch(model) if watch else backprobe.edit_gradients(model, "*", lambda g: g):
        step()
    assert compiled_frames() <= alone + 12  # what hooks on modules add
    assert all(map(torch.equal, grads(model), expected))


def test_a_backward_inside_compiled_code_is_watched() -> None:
    """Also the first of the process, after which the price of a node is measured with a backward of our own."""
    overheads._measured_of_node.cache_clear()
    model = made()
    step = compiled_step(model, "aot_eager")
    with backprobe.trace(model) as trace:
        for _ in range(3):
            step()
            grads(model)
    assert len(list(trace.backwards)) == 3
    assert [u.what for u in trace.coverage.unseen if isinstance(u, Unseen) and u.hides] == ["compiled regions"]
    assert len(trace.coverage.gaps) == 1 and "compiled regions" in trace.coverage.gaps[0]


@pytest.mark.parametrize("where", ["output", "node"])
def test_an_edit_that_compiled_code_skips_is_reported(where: str) -> None:
    """Never applied, or applied in some calls and not in those that ran compiled code."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    compiled, x = torch.compile(lambda: model(x), backend="aot_eager"), torch.ones(3, 4)
    subject, select = (model, "1") if where == "output" else (None, "Tanh*")

    def edited(*calls: Callable[[], torch.Tensor]) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with backprobe.edit_gradients(subject, select, backprobe.gradient_ops.zero, where=where) as log:
                for call in calls:
                    call().sum().backward()
        return log, [str(w.message) for w in caught if "an edit" in str(w.message)]

    log, said = edited(compiled)
    assert log.total == 0 and "an edit was never applied" in said[0]
    assert any("torch.compile" in str(unused) for unused in log.unused)
    log, said = edited(lambda: model(x))
    assert log.total == 1 and not said and not log.unused
    log, said = edited(lambda: model(x), compiled, compiled)
    assert log.total == 1
    assert len(said) == 1 and "an edit was left out" in said[0] and "in 2 backward calls: they ran code" in said[0]


def test_capture_gaps_in_compiled_code() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    step = torch.compile(lambda x: model(x).sum(), backend="aot_eager")
    with backprobe.capture(model) as acts:
        step(torch.ones(3, 4))
    assert not acts
    assert all("in a compiled region, where hooks do not run" in why for why in acts.unseen.values())


class Pooled(nn.Module):
    """The root of a variance: not finite, or without a derivative, where all is one value."""

    def __init__(self, log: bool) -> None:
        super().__init__()
        self.embed, self.log = nn.Linear(1, 4), log

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread = self.embed(x[..., None]).tanh().var(1)
        return torch.log(spread) - torch.log(spread) if self.log else spread.sqrt()


@pytest.mark.parametrize("log", [False, True])
def test_the_line_inside_a_region_that_can_have_made_it(log: bool) -> None:
    torch.manual_seed(0)
    net = Pooled(log)
    run = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(8):
            x = torch.randn(3, 5)
            if step == 6:
                x[1] = 0.5
            loss = run(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, found.confidence) == ("nonfinite-forward" if log else "nonfinite-backward", "certain")
    assert found.sites[0].site.text.startswith("return torch.log(spread)") and found.step == 6


def steps_with_a_hook(net: nn.Module, at: int) -> int:
    """How often a hook ran that is put on the first layer before step `at`."""
    ran: list[int] = []
    run = torch.compile(lambda x: net(x), backend="aot_eager")
    for step in range(6):
        if step == at:
            net[0].register_full_backward_hook(lambda *given: ran.append(1))
        run(torch.randn(3, 4)).square().sum().backward()
    return len(ran)


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


@contextlib.contextmanager
def a_hook_on_all_modules() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, args: None)
    yield
    handle.remove()


@pytest.mark.parametrize("late", [False, True])
def test_a_hook_that_comes_after_compiling(late: bool) -> None:
    """An earlier hook is compiled too; Dynamo may learn of a later one if there is a hook on all modules."""
    with a_hook_on_all_modules():
        expected = steps_with_a_hook(layers(), 3 * late)
    net = layers()
    with backprobe.trace(net, budget=None) as trace:
        assert steps_with_a_hook(net, 3 * late) == expected
    never = [] if expected else [("hook-never-fires", "0")]
    assert [(f.kind, f.module) for f in trace.findings] == never
    assert late or expected


def region_of(watched: Any, function: str) -> Any:
    return next(one for one in watched.compiled if one.function == function and one.after is None)


def test_what_was_compiled() -> None:
    """Against what Dynamo counts."""
    net = nn.Linear(3, 3)

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        dynamo.graph_break()  # BREAK
        return y.sin()

    def anew(x: torch.Tensor, k: int) -> torch.Tensor:
        return net(x) * k

    first, second = torch.compile(broken, backend="aot_eager"), torch.compile(anew, backend="aot_eager", dynamic=False)
    with backprobe.trace(net) as trace:
        for k in range(3):
            (first(torch.ones(2, 3)).sum() + second(torch.ones(2, 3), k).sum()).backward()
    graphs = sum(one.graphs for one in trace.compiled)
    assert graphs == dynamo.utils.counters["stats"]["unique_graphs"] == 5
    assert sum(one.backwards for one in trace.compiled) == 5
    (seen,) = region_of(trace, "broken").breaks
    assert seen.site.text.endswith("# BREAK") and "graph_break()" in seen.reason
    again = region_of(trace, "anew").recompiled
    assert [r.guard for r in again] == ["k == 0", "k == 1"] and again[0].site.text == "return net(x) * k"
    (rest,) = [one for one in trace.compiled if one.after is not None]
    assert rest.function == "broken" and rest.graphs == 1 and all(one.seconds > 0 for one in trace.compiled)
    assert {one["function"] for one in trace.as_dict()["compiled"]} == {"broken", "anew"}
    page = document(trace)
    rows = {row["name"].partition(" (")[0]: row for row in page["compiled"]}
    assert page["sites"][rows["broken"]["breaks"][0]["site"]]["text"].endswith("# BREAK")
    assert [one["guard"] for one in rows["anew"]["again"]] == ["k == 0", "k == 1"] and rows["anew"]["recompiled"] == 2
    assert sum(row["graphs"] for row in rows.values()) == graphs and len(rows) == len(trace.compiled)


@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_region_that_goes_bad_is_run_again(backend: str, every: int) -> None:
    """Also in a step that is not recorded, whose gradients inside are not known; random numbers stay as they were."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 1))

    def root(x: torch.Tensor) -> torch.Tensor:
        return (net(x) * 0 + x[:, :1]).sqrt().mean() + net(x).mean()  # ROOT

    def whole(watch: bool) -> tuple[Any, list[torch.Tensor], torch.Tensor]:
        dynamo.reset()
        torch.manual_seed(1)
        run = torch.compile(root, backend=backend)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        with backprobe.trace(net, budget=None, every=every) if watch else contextlib.nullcontext() as trace:
            for step in range(7):
                x = torch.rand(3, 4) + 0.5
                x[:, 0] = float(step != 6)
                optimizer.zero_grad()
                run(x).backward()
                if step != 6:
                    optimizer.step()
        return trace, grads(net), torch.get_rng_state()

    trace, found, state = whole(True)
    _, expected, alone = whole(False)
    assert torch.equal(state, alone)
    assert len(found) == len(expected) == 4
    assert all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(found, expected, strict=True))
    if backend != "eager":  # of which autograd sees the inside
        assert [f.kind for f in trace.findings][:1] == ["nonfinite-backward"]
        assert trace.findings[0].sites[0].site.text.endswith("# ROOT") and trace.findings[0].step == 6


def put_there() -> set[str]:
    """Names of this file's globals, where Dynamo looks for what it has compiled, that stand for a call of ours."""
    ours = compiled_graphs.__file__
    return {
        name for name, value in globals().items() if getattr(value, "__code__", put_there.__code__).co_filename == ours
    }


def test_nothing_remains_in_dynamo_after_a_session() -> None:
    compiles, graph = torch.compile, sys.modules["torch._dynamo.output_graph"].OutputGraph
    methods = graph.call_user_compiler, graph.install_global_unsafe
    net = nn.Linear(3, 3)
    run = torch.compile(lambda x: net(x).sin(), backend="aot_eager")
    assert put_there() == set()
    with backprobe.trace(net):
        before = put_there()  # of other tests: Note [Compiled in an earlier session]
        run(torch.ones(2, 3)).sum().backward()
        assert len(put_there() - before) == 1
    assert put_there() == set()
    assert torch.compile is compiles
    assert (graph.call_user_compiler, graph.install_global_unsafe) == methods
    for _ in range(3):
        run(torch.ones(2, 3)).sum().backward()
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1


def fed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    kept = (x @ weight).sigmoid()  # SAVED
    kept.t().mul_(2)  # WRITE
    return kept.sum()


def put(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    made = x @ weight
    kept = made.tanh()  # SAVED
    kept[0] = 0.0  # WRITE
    return kept.sum() + made.sum()


def fine(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    made = x @ weight
    made += 1  # which nothing needs
    return made.sum()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [fed, put])
def test_a_write_that_torch_does_not_compile(function: Any, dynamic: bool | None) -> None:
    """Through a view and into a part, with shapes that are known and that are not."""
    run = torch.compile(function, backend="aot_eager", dynamic=dynamic)
    x, weight, state = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True), torch.get_rng_state()
    with backprobe.trace() as trace, pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run(x, weight)
    (found,) = trace.findings
    assert (found.kind, found.confidence) == ("inplace", "certain")
    texts = [(one.role, one.site.text.rpartition("# ")[2]) for one in found.sites]
    assert texts[:2] == [("mutated", "WRITE"), ("saved", "SAVED")] and texts[2][0] == "failed"
    assert found.evidence["shape"] == [2, 3]
    assert torch.equal(state, torch.get_rng_state())


def test_a_write_that_nothing_needs_is_compiled() -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    with backprobe.trace() as trace:
        torch.compile(fine, backend="aot_eager")(torch.ones(2, 3), weight).backward()
    assert not trace.findings and torch.equal(weight.grad, torch.full((3, 3), 2.0))


def test_a_model_that_runs_in_python_where_it_is_not_compiled() -> None:
    """Both the compiler and the backward report the write, at the same line."""
    weight = torch.ones(3, 3, requires_grad=True)
    with (
        dynamo.config.patch(suppress_errors=True),
        backprobe.trace() as trace,
        pytest.raises(RuntimeError, match="modified by an inplace operation"),
    ):
        torch.compile(fed, backend="aot_eager")(torch.ones(2, 3), weight).backward()
    assert {found.kind for found in trace.findings} == {"inplace"}
    assert {found.sites[0].site.text.rpartition("# ")[2] for found in trace.findings} == {"WRITE"}


@pytest.mark.parametrize("create", [False, True])
def test_a_graph_that_a_region_does_not_keep(create: bool) -> None:
    """The error comes where the first backward was compiled to use up what the forward keeps."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    run = torch.compile(model, backend="aot_eager")
    with backprobe.trace(model) as trace:
        run(torch.ones(3, 4)).sum().backward()
        with pytest.raises(RuntimeError, match="donated"):
            run(torch.ones(3, 4)).sum().backward(retain_graph=True, create_graph=create)  # HERE
    (found,) = trace.findings
    assert found.kind == "backward-error" and found.sites[0].site.text.endswith("# HERE")
    assert ("second derivative" in found.title) is create and ("retain_graph" in found.title) is not create
    assert "donated" in found.evidence["error"]
