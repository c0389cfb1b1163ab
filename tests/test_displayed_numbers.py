"""Every kind of number in the page and the terminal, compared with plain hooks of a script in double precision."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch
from handmade import call, leaf, parameter, run, traced
from torch import nn

import backprobe
from backprobe import Trace
from backprobe.basics.text import number
from backprobe.records import ModuleCall, ParameterStat, SavedMemory
from backprobe.report.document import document
from backprobe.store.reader import open_run
from backprobe.traces import TracedStep
from backprobe.view.parts import report
from backprobe.view.terminal import write

ROOT = str(Path(backprobe.__file__).parents[1])
CODES = {"f32": "f", "f64": "d", "i32": "i", "u8": "B"}

#: A causal model on real tensors: a mask of -inf, a parameter on no module, clipped gradients, a module called twice,
#: gradients below and above what squares in single precision hold, and a graph that changes on the way.
SCRIPT = """
import json, sys
import torch
from torch import nn

torch.manual_seed(0)
STEPS = 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)
        self.act, self.late = nn.Tanh(), nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x, late):
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        scores = scores.masked_fill(mask, float("-inf")) / 2.5
        x = self.act(scores.softmax(-1) @ x)
        if late:
            x = self.act(self.late(x))
        return self.head(x)


model, free = Model(), nn.Parameter(torch.randn(4, 3))
tiny, huge = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3))
named = [*model.named_parameters(), ("free", free), ("tiny", tiny), ("huge", huge)]
optimizer = torch.optim.SGD([p for _, p in named], 1e-3)
truth = {"loss": [], "gradient": [], "used": [], "weight": [], "update": [], "forward": [], "nodes": [], "calls": 0}


def norm(t):
    return float(t.detach().double().norm())


for name, module in model.named_modules():
    module.register_forward_hook(lambda m, i, o, name=name: truth["forward"][-1].append([name, norm(o)]))
for step in range(STEPS):
    truth["forward"].append([])
    out = model(torch.randn(4, 5, 6), step >= 7)
    loss = out.square().mean() + (free * 0.5).square().sum() + (tiny * 8e-24).sum() + (huge * 8e21).sum() * 1e-21
    truth["loss"].append(float(loss))
    optimizer.zero_grad()
    seen, stack, kinds = set(), [loss.grad_fn], {}
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kinds[node.name()] = kinds.get(node.name(), 0) + 1
        stack += [n for n, _ in node.next_functions]
    truth["nodes"].append(kinds)
    loss.backward()
    truth["calls"] += 1
    truth["gradient"].append({n: norm(p.grad) for n, p in named if p.grad is not None})
    before = {n: p.detach().clone() for n, p in named}
    truth["weight"].append({n: norm(p) for n, p in named})
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.05)
    truth["used"].append({n: norm(p.grad) for n, p in named if p.grad is not None})
    optimizer.step()
    truth["update"].append({n: norm(p.detach().double() - before[n].double()) for n, p in named if p.grad is not None})
truth["shapes"] = {n: list(p.shape) for n, p in named}
with open(sys.argv[1], "w") as file:
    json.dump(truth, file)
"""


def numbers(column):
    return list(array(CODES[column["t"]], base64.b64decode(column["b"])))


def text_of(trace, **more) -> str:
    file = io.StringIO()
    write(report(trace, **more), file)
    return re.sub(r"\s+", " ", file.getvalue())


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the script; return the numbers from its hooks, the run, the document of its page, and its terminal output."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "train.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": ROOT, "COLUMNS": "200"}
    command = [sys.executable, "-m", "backprobe", "run", "--out", "run", "train.py", "truth.json"]
    said = subprocess.run(command, cwd=folder, check=True, timeout=600, env=env, capture_output=True, text=True).stderr
    trace = open_run(folder / "run")
    return json.loads((folder / "truth.json").read_text()), trace, document(trace), re.sub(r"\s+", " ", said)


def between(values):
    return " to ".join(sorted({number(min(values)), number(max(values))}, key=float))


def test_counts_and_losses(ran):
    truth, trace, made, said = ran
    assert trace.findings == []
    steps = len(truth["loss"])
    assert made["run"]["steps"] == steps == truth["calls"] == made["run"]["backwards"]
    assert f"in {steps} steps (" in said
    assert numbers(made["steps"]["index"]) == list(range(steps))
    assert numbers(made["steps"]["loss"]) == pytest.approx(truth["loss"], rel=1e-12)
    assert f"loss {number(truth['loss'][0])} in the first step, {number(truth['loss'][-1])} in the last" in said


def test_gradients_are_those_that_backward_gave(ran):
    """By parameter and step, before the script clipped them; those that no gradient reached have none."""
    truth, trace, made, said = ran
    series, names = made["steps"]["series"], [p["name"] for p in made["parameters"]]
    assert series["exact"] and sorted(names) == sorted(truth["shapes"])
    high, count = numbers(series["gradient"]["high"]), len(truth["loss"])
    for p, name in enumerate(names):
        for step in range(count):
            true = truth["gradient"][step].get(name, -1.0)
            assert high[step * series["size"] + p] == pytest.approx(true, rel=1e-5), (name, step)
    totals = [math.hypot(*by.values()) for by in truth["gradient"]]
    assert numbers(made["steps"]["gradient"]) == pytest.approx(totals, rel=1e-5)
    assert numbers(made["steps"]["source"]) == [1] * count
    figure = f"gradient norm {between(totals)} before any clipping"
    assert figure in said and any(figure in line for line in made["figures"]) and figure in text_of(trace)
    # What one gets in Python.
    assert trace["free"].grad_norms == pytest.approx({s: g["free"] for s, g in enumerate(truth["gradient"])}, rel=1e-5)
    table = text_of(trace, details=True, whole=True)
    for name, value in truth["gradient"][-1].items():
        assert re.search(rf"{re.escape(name)} \S+ {re.escape(number(value))} \S+", table), (name, value)


def test_weights_and_updates_where_they_were_measured(ran):
    truth, trace, made, said = ran
    series, names, count = made["steps"]["series"], [p["name"] for p in made["parameters"]], len(truth["loss"])
    ratios = []
    for kind in ("weight", "update"):
        high, seen = numbers(series[kind]["high"]), 0
        for p, name in enumerate(names):
            for step in range(count):
                value = high[step * series["size"] + p]
                if value == -1:
                    continue
                seen += 1
                true = truth[kind][step][name]
                # An update is the difference of rounded weights: it is as exact as they are.
                assert value == pytest.approx(true, rel=1e-5, abs=1e-7 * truth["weight"][step][name])
        assert seen >= 3 * len(truth["gradient"][0])
        totals = numbers(made["steps"][kind])
        assert totals[0] == pytest.approx(math.hypot(*[v for n, v in truth[kind][0].items()]), rel=1e-4)
    for step, by in enumerate(trace.steps):
        ratios += [s.update / s.weight for s in by.parameters.values() if s.update is not None and s.weight]
        for name, stat in by.parameters.items():  # the record of the optimizer has what it was given, clipped
            if stat.grad is not None:
                assert stat.grad == pytest.approx(truth["used"][step][name], rel=1e-5)
    assert f"changes a parameter by {number(100 * median(ratios))}% of its norm" in said
    assert numbers(made["steps"]["ratio"])[0] == pytest.approx(
        median(truth["update"][0][n] / truth["weight"][0][n] for n in truth["update"][0]), rel=1e-3
    )


def test_forward_norms_have_the_step_that_they_were_seen_in(ran):
    truth, _, made, _ = ran
    assert made["forward"]
    for forward in made["forward"]:
        true = truth["forward"][forward["step"]]
        paths = [made["modules"][m]["path"] for m in numbers(forward["module"])]
        nths, norms = numbers(forward["nth"]), numbers(forward["norm"])
        by_hook: dict[str, list[float]] = {}
        for name, value in true:
            by_hook.setdefault(name, []).append(value)
        assert len(paths) == len(true)
        for path, nth, value in zip(paths, nths, norms, strict=True):
            assert value == pytest.approx(by_hook[path][nth - 1], rel=1e-5), (forward["step"], path, nth)


def test_module_calls_say_when_they_were_seen(ran):
    truth, trace, _, _ = ran
    for step in trace.steps:
        measured = [c for c in step.module_calls if c.norm is not None]
        for one in measured:
            assert one.seen is not None and one.seen <= step.index
            found = [v for name, v in truth["forward"][one.seen] if name == one.path]
            assert one.norm == pytest.approx(found[one.call - 1], rel=1e-5)


def test_forward_norms_in_memory_have_their_step():
    calls = [
        (ModuleCall(0, "", "M", 1, 0, -1, None, ((2,),), True, 1.5, 3),),
        (ModuleCall(0, "", "M", 1, 0, -1, None, ((2,),), True, 1.5, 3),),
        (ModuleCall(0, "", "M", 1, 0, -1, None, ((2,),), True, 2.5, 7),),
    ]
    given = traced(*(call(leaf("w"), index=i) for i in range(3)))
    steps = [
        TracedStep(s.record, s.backwards, lambda mine=mine: mine) for s, mine in zip(given.steps, calls, strict=True)
    ]
    made = document(Trace(steps, given.facts))
    assert [(f["step"], numbers(f["norm"])) for f in made["forward"]] == [(3, [1.5]), (7, [2.5])]


def test_parameters_have_their_shape_and_what_reached_them(ran):
    truth, _, made, _ = ran
    for p in made["parameters"]:
        assert p["shape"] == truth["shapes"][p["name"]]
        assert p["reached"] == sum(p["name"] in by for by in truth["gradient"])
        assert p["alive"] and p["trained"] is True and p["free"] == (p["name"] in ("free", "tiny", "huge"))


def test_nodes_are_those_of_the_graph(ran):
    truth, _, made, _ = ran
    assert {c["step"] for c in made["calls"]} >= {0, len(truth["loss"]) - 1}
    for one in made["calls"]:
        layout = made["layouts"][one["layout"]]
        kinds: dict[str, int] = {}
        for k in numbers(layout["name"]):
            kinds[layout["strings"][k]] = kinds.get(layout["strings"][k], 0) + 1
        assert kinds == truth["nodes"][one["step"]]
        assert sorted(numbers(one["order"])) == list(range(len(numbers(one["order"]))))


def test_a_mask_is_no_trouble(ran):
    _, _, made, _ = ran
    for one in made["calls"]:
        assert not any(numbers(one["marks"]))
        lines = [line for lines in one["notes"].values() for line in lines]
        assert all("Inf" not in line or "as of a mask" in line for line in lines)
    first = [line for lines in made["calls"][0]["notes"].values() for line in lines]
    assert any("masked_fill" in line for line in first)


MASKS = {
    "a mask": ("scores.masked_fill(mask, -inf).softmax(-1)", False),
    "one that is added, in a view": (
        "(scores.view(3, 3) + torch.zeros(3, 3).masked_fill(mask, -inf)).softmax(-1)",
        False,
    ),
    "one that is divided after": ("(scores.masked_fill(mask, -inf) / 2).softmax(-1)", False),
    "a row that is masked whole": ("scores.masked_fill(mask | True, -inf).softmax(-1)", True),
    "one that nothing takes in": ("scores.masked_fill(mask, -inf)", True),
    "one that reaches the loss by another way": (
        "scores.masked_fill(mask, -inf).softmax(-1) + scores.masked_fill(mask, -inf).exp().log()",
        True,
    ),
}


@pytest.mark.parametrize("what", MASKS)
def test_infinities_are_marked_where_they_do_harm(what):
    text, harmful = MASKS[what]
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.ones(3, 3, dtype=torch.bool).triu(1)
    with backprobe.trace() as trace:
        scores = x * 2
        eval(text, {"torch": torch, "scores": scores, "mask": mask, "inf": math.inf}).sum().backward()
    made = document(trace)["calls"][0]
    assert any(m & 4 for m in numbers(made["marks"])) == harmful


def test_times_are_means_over_the_calls_that_they_are_said_of():
    """On a clock made by hand: two steps of one graph, and one of another."""

    def timed(step, *seconds):
        runs = [run("MulBackward0", 1, module="a"), run("TanhBackward0", 2, module="b"), leaf("w")]
        made = call(*runs[-len(seconds) :] if len(seconds) < 3 else runs, index=step)
        return replace(
            made,
            seconds=sum(s or 0 for s in seconds),
            nodes=[replace(r, seconds=s) for r, s in zip(made.nodes, seconds, strict=True)],
        )

    trace = traced(timed(0, 1.0, 2.0, None), timed(1, 3.0, 6.0, None))
    made = document(trace)
    assert [numbers(c["time"]) for c in made["calls"]] == [[1.0, 2.0, -1.0], [3.0, 6.0, -1.0]]
    assert [c["seconds"] for c in made["calls"]] == [3.0, 9.0]
    text = text_of(trace, details=True)
    assert "Mean of 2 steps, 0 to 1: time in backward by module" in text
    assert "b 4000.00 ms 1" in text and "a 2000.00 ms 1" in text
    assert "Step 0: time in backward" in text_of(traced(timed(0, 1.0, 2.0, None)), details=True)


def test_mean_times_of_a_graph(ran):
    _, _, made, _ = ran
    for number_of, layout in enumerate(made["layouts"]):
        mine = [numbers(c["time"]) for c in made["calls"] if c["layout"] == number_of]
        assert layout["timed"] == len(mine)
        for i, value in enumerate(numbers(layout["time"])):
            known = [t[i] for t in mine if t[i] >= 0]
            assert value == pytest.approx(sum(known) / len(known) if known else -1.0, rel=1e-5)


def test_a_total_of_parts_is_not_said_where_nobody_measured_the_whole(tmp_path):
    """Two calls add to a gradient: its norm is the optimizer's, or not known."""
    torch.manual_seed(0)
    model, truth = nn.Linear(3, 1), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            for _ in range(2):
                (model(torch.randn(2, 3)).square().mean() / 2).backward()
            truth.append(math.hypot(*[float(p.grad.double().norm()) for p in model.parameters()]))
            optimizer.step()
    made = document(trace)
    totals, sources = numbers(made["steps"]["gradient"]), numbers(made["steps"]["source"])
    assert sources.count(2) >= 3 and set(sources) <= {0, 2}
    for total, source, true in zip(totals, sources, truth, strict=True):
        assert total == (pytest.approx(true, rel=1e-5) if source else -1.0)
    known = [t for t in totals if t >= 0]
    figure = f"gradient norm {between(known)} after any clipping and unscaling"
    if len(known) < 6:
        figure += f", in {len(known)} of 6 steps"
    assert figure in text_of(trace) and any(figure in line for line in made["figures"])


def test_norms_before_and_after_clipping_are_never_one_series():
    """Two of three steps are not recorded: in some of them the optimizer's gradients are measured, clipped ones. The
    norm that clipping found counts there.
    """
    torch.manual_seed(0)
    model, before = nn.Linear(3, 1), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model, every=3) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).square().mean().backward()
            before.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e-4)))
            optimizer.step()
    met = [p.grad for step in trace.steps if step.index % 3 for p in step.record.parameters if p.grad is not None]
    assert met and max(met) <= 1e-4  # there are others
    made = document(trace)
    totals, sources = numbers(made["steps"]["gradient"]), numbers(made["steps"]["source"])
    for step, (total, source, true) in enumerate(zip(totals, sources, before, strict=True)):
        assert (total, source) == (pytest.approx(true, rel=1e-5), 1), step
    figure = f"gradient norm {between(before)} before any clipping"
    assert figure in text_of(trace) and any(figure in line for line in made["figures"])
    part = trace["weight"]
    assert list(part.grad_norms) == [0, 3, 6, 9] and part.grad_kind == "before any clipping"
    assert "gradient flow before any clipping" in text_of(trace, details=True)


def test_memory_does_not_tell_of_steps_that_it_let_go():
    """A block keeps some of its steps: the figures say of how many they are, and page and terminal say the same."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with backprobe.trace(model) as trace:
        for _ in range(50):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).square().mean().backward()
            optimizer.step()
    assert len(trace.steps) < 50
    made = document(trace)
    assert any(f", in {len(trace.steps)} of 50 steps" in line for line in made["figures"])
    assert all(line in text_of(trace) for line in made["figures"])


SAVED = """
import json, sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
held = {p.untyped_storage().data_ptr() for p in model.parameters()}
for step in range(4):
    seen = {}
    x = torch.randn(3, 5)
    mine = held | {x.untyped_storage().data_ptr()}
    def pack(t):
        s = t.untyped_storage()
        if s.data_ptr() not in mine:
            seen[s.data_ptr()] = s.nbytes()
        return t
    if sys.argv[1:]:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = model(x).square().sum()
        if step == 0:
            json.dump(sum(seen.values()), open(sys.argv[1], "w"))
    else:
        out = model(x).square().sum()
    optimizer.zero_grad()
    out.backward()
    optimizer.step()
"""


def test_bytes_saved_for_backward(tmp_path):
    """Against plain saved-tensor hooks: the bytes of the storages that nothing else holds."""
    (tmp_path / "train.py").write_text(SAVED)
    env = {**os.environ, "PYTHONPATH": ROOT}
    subprocess.run([sys.executable, "train.py", "truth.json"], cwd=tmp_path, check=True, timeout=600, env=env)
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--check", "memory", "--out", "run", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600, env=env)
    trace = open_run(tmp_path / "run")
    true = json.loads((tmp_path / "truth.json").read_text())
    made = document(trace)["memory"]
    assert made["total"] == true == sum(row["bytes"] for row in made["rows"]) == numbers(made["curve"])[0]
    seen = trace.facts.one(SavedMemory)
    assert seen is not None and sum(e.nbytes for e in seen.entries if not e.holder) == true


def test_a_gradient_that_several_calls_add_to_is_never_a_part_of_itself():
    """On records: neither the last call's share nor none, in the text of the last steps and in what Python gives."""
    shares = [call(leaf("w", came=3.0), index=0, step=0), call(leaf("w", came=4.0), index=1, step=0)]
    trace = traced(*shares, parameters=[parameter("w")])
    assert trace["w"].grad_norms == {}
    assert "gradient flow" not in text_of(trace, details=True)
    whole = replace(trace.steps[0].record, parameters=(ParameterStat("w", 1.0, 5.0, 0.1),))
    trace = Trace([TracedStep(whole, shares)], trace.facts)
    assert trace["w"].grad_norms == {0: 5.0}
    assert "gradient flow" in text_of(trace, details=True) and "w 5 " in text_of(trace, details=True)
