"""The document of a page against its records, the page as a file, and the served page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from array import array
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe.basics.errors import BackprobeError
from backprobe.records import Facts, ParameterStat, SavedMemory, Step
from backprobe.records.places import NOT_KEPT
from backprobe.report import columns, steps
from backprobe.report.document import FORMAT, document, packed
from backprobe.report.serve import Server, Source
from backprobe.report.tables import Modules, Parameters
from backprobe.store.reader import open_run
from backprobe.store.writer import Writer

CODES = {"f32": "f", "f64": "d", "i32": "i", "u8": "B"}


def numbers(column):
    """Decode a column as the page does."""
    assert set(column) == {"t", "b"}
    return list(array(CODES[column["t"]], base64.b64decode(column["b"])))


def data_of(file: Path):
    found = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', file.read_text())
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.lin = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.relu(self.lin(self.norm(x)))


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            loss = model(torch.randn(4, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace


@pytest.fixture(scope="module")
def made(traced):
    return json.loads(gzip.decompress(packed(document(traced, "a run"))))


def test_modules_are_in_forward_order_and_preorder(made):
    paths = [m["path"] for m in made["modules"]]
    assert paths == ["", "0", "0.norm", "0.lin", "1", "1.norm", "1.lin", "2"]
    assert [m["parent"] for m in made["modules"]] == [-1, 0, 1, 1, 0, 4, 4, 0]
    assert [m["class"] for m in made["modules"][:3]] == ["Sequential", "Block", "LayerNorm"]
    assert [p["name"] for p in made["parameters"]][:4] == ["0.norm.weight", "0.norm.bias", "0.lin.weight", "0.lin.bias"]
    assert made["format"] == FORMAT and made["run"]["name"] == "a run" and made["run"]["steps"] == 6


def test_every_node_is_as_it_was_recorded(traced, made):
    assert made["calls"]
    by_index = {b.index: b for b in traced.backwards}
    for call in made["calls"]:
        runs = by_index[call["index"]].nodes
        layout = made["layouts"][call["layout"]]
        names, starts, to = numbers(layout["name"]), numbers(layout["edges"]), numbers(layout["to"])
        out, came, order = numbers(call["out"]), numbers(call["came"]), numbers(call["order"])
        assert [layout["strings"][k] for k in names] == [r.name for r in runs]
        assert order == [r.order for r in runs]
        for i, run in enumerate(runs):
            module = made["modules"][numbers(layout["module"])[i]]["path"] if run.module is not None else None
            assert module == run.module
            assert to[starts[i] : starts[i + 1]] == [-1 if e is None else e[0] for e in run.node.edges]
            parameter = numbers(layout["parameter"])[i]
            assert (made["parameters"][parameter]["name"] if parameter >= 0 else None) == run.parameter
            expected = [g.norm for g in run.grad_outputs if g is not None and g.norm is not None]
            if expected:
                assert came[i] == pytest.approx(math.sqrt(sum(v * v for v in expected)), rel=1e-6)
            else:
                assert came[i] == -1
            given_out = [g.norm if g is not None and g.norm is not None else -1 for g in run.grad_inputs]
            for k in range(len(run.node.edges)):
                assert out[starts[i] + k] == pytest.approx(given_out[k] if k < len(given_out) else -1, rel=1e-6)
            site = numbers(layout["site"])[i]
            assert (made["sites"][site]["line"] if site >= 0 else None) == (run.site.line if run.site else None)


def test_steps_have_the_norms_of_the_records(traced, made):
    series, names = made["steps"]["series"], [p["name"] for p in made["parameters"]]
    assert series["exact"] and numbers(series["gradient"]["low"]) == []
    high = {kind: numbers(series[kind]["high"]) for kind in ("gradient", "weight", "update")}
    count = len(traced.steps)
    assert numbers(made["steps"]["index"]) == list(range(count))
    assert numbers(made["steps"]["loss"]) == [s.loss for s in traced.steps]
    for at, step in enumerate(traced.steps):
        total = 0.0
        for p, name in enumerate(names):
            leaf = next(r for r in step.backwards[0].nodes if r.parameter == name).grad_outputs[0].norm
            assert high["gradient"][at * len(names) + p] == pytest.approx(leaf, rel=1e-6)
            stat = step.parameters.get(name)
            for kind, value in (("weight", stat and stat.weight), ("update", stat and stat.update)):
                assert high[kind][at * len(names) + p] == pytest.approx(-1 if value is None else value, rel=1e-6)
            total += leaf**2
        assert numbers(made["steps"]["gradient"])[at] == pytest.approx(math.sqrt(total))


def test_a_loss_has_its_origin(tmp_path):
    writer = Writer(tmp_path / "run", {"first_steps": 2, "first_cost": 0.5, "own": 1.0})
    writer.step(Step(0, 0.1, 1.0, (), (), calls=4, scale=1024.0), 0, lambda: ())
    writer.step(Step(1, 0.1, None, (), ()), 0, lambda: ())
    writer.close(Facts(), [])
    made = document(open_run(tmp_path / "run"))
    assert (numbers(made["steps"]["calls"]), numbers(made["steps"]["scale"])) == ([4, 1], [1024.0, 1.0])
    assert numbers(made["steps"]["source"]) == [0, 0] and numbers(made["steps"]["gradient"]) == [-1.0, -1.0]
    assert made["run"]["took"] == "Overhead at least 1.5 s." and made["run"]["gaps"] == []


def test_norms_of_module_outputs_are_those_of_the_tensors():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
    seen = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, a, out, name=name: seen.update({name: float(out.detach().norm())}))
    with backprobe.trace(model) as trace:
        model(torch.randn(3, 5)).sum().backward()
    made = document(trace)
    (forward,) = made["forward"]
    got = {
        made["modules"][m]["path"]: v for m, v in zip(numbers(forward["module"]), numbers(forward["norm"]), strict=True)
    }
    assert got == pytest.approx(seen, rel=1e-6)


def test_bad_values_and_findings_are_marked():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    with backprobe.trace(model) as trace:
        (model(torch.ones(2, 3)) * 0).abs().sqrt().sum().backward()
    made = json.loads(json.dumps(document(trace), allow_nan=False))  # nothing that JSON does not know
    assert made["findings"][0]["kind"] == "nonfinite-backward"
    call, node = made["findings"][0]["at"]
    layout = made["layouts"][made["calls"][call]["layout"]]
    marks = numbers(made["calls"][call]["marks"])
    assert layout["strings"][numbers(layout["name"])[node]] == made["findings"][0]["node"]
    assert marks[node] & 2 and not marks[node] & 1
    assert sum(m & 2 for m in marks) == 2 and any(m & 1 for m in marks)
    assert any("Inf" in line for line in made["calls"][call]["notes"][str(node)])


def test_a_call_that_raised_is_marked():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("not today")

    x = torch.ones(2, requires_grad=True)
    trace = backprobe.trace()
    with pytest.raises(ValueError), trace:
        Bad.apply(x * 2).sum().backward()
    made = document(trace)
    call = made["calls"][0]
    assert call["raised"] == "ValueError: not today"
    at = [i for i, m in enumerate(numbers(call["marks"])) if m & 16]
    strings, names = made["layouts"][0]["strings"], numbers(made["layouts"][0]["name"])
    assert [strings[names[i]] for i in at] == ["BadBackward"]


def test_modules_without_calls_and_unknown_parents_find_a_place():
    modules = Modules([], ["b.c.d", "a", "b.x", "b.c"])
    assert modules.paths == ["", "b", "b.c", "b.c.d", "b.x", "a"]
    assert modules.of("b.c") == 2 and modules.of(None) == -1 and modules.of("nope") == -1


@given(st.lists(st.text("ab.", min_size=1, max_size=7).filter(lambda p: ".." not in p and p.strip(".") == p)))
def test_modules_are_always_in_preorder(paths):
    modules = Modules([], paths)
    assert set(paths) <= set(modules.paths)
    rows = [p.rpartition(".")[0] for p in modules.paths]
    for i, path in enumerate(modules.paths[1:], 1):
        assert modules.of(rows[i]) < i
        below = [p for p in modules.paths if p.startswith(f"{path}.")]
        assert modules.paths[i + 1 : i + 1 + len(below)] == below  # all of it right after it


@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, 1e30, math.inf, math.nan]), min_size=2, max_size=2)),
    st.integers(1, 5),
)
def test_buckets_hold_the_least_and_the_greatest(rows, width):
    series = steps._Series(2, width)
    for at, row in enumerate(rows):
        series.take(at, [0, 1], row)
    made = series.document()
    high, low = numbers(made["high"]), numbers(made["low"])
    count = -(-len(rows) // width)
    assert len(high) == 2 * count and len(low) == (2 * count if width > 1 else 0)
    for p in range(2):
        for k in range(count):
            values = [row[p] for row in rows[k * width : (k + 1) * width]]
            known = [v for v in values if not v < 0]
            got = high[2 * k + p]
            if any(not math.isfinite(v) for v in known):
                assert not math.isfinite(got)
            else:
                assert got == pytest.approx(max(known, default=-1.0))
            if width > 1 and known and not any(math.isnan(v) for v in known):
                assert low[2 * k + p] == pytest.approx(min(known))


def test_many_steps_are_thinned_and_totals_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "MAX_NORMS", 100)
    writer = Writer(tmp_path / "run", {})
    for i in range(90):
        stats = (ParameterStat("a.w", 1.0, float(i), 0.5), ParameterStat("a.b", None, None, None))
        writer.step(Step(i, 0.1, 1.0 / (i + 1), (), stats), 0, lambda: ())
    writer.close(Facts(), [])
    made = document(open_run(tmp_path / "run"))
    series = made["steps"]["series"]
    starts = numbers(series["start"])
    assert not series["exact"] and starts == list(range(0, 90, 2))
    low, high = (numbers(series["gradient"][end]) for end in ("low", "high"))
    assert low[:6:2] == [0, 2, 4] and high[:6:2] == [1, 3, 5]
    assert high[1::2] == [-1.0] * len(starts)  # never measured
    assert numbers(made["steps"]["gradient"]) == [float(i) for i in range(90)]
    assert numbers(made["steps"]["ratio"]) == [0.5] * 90
    assert [p["name"] for p in made["parameters"]] == ["a.w", "a.b"]
    assert set(numbers(made["steps"]["recorded"])) == {0}


def test_steps_say_whether_their_nodes_were_recorded():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model, every=3) as trace:
        for _ in range(8):
            model(torch.ones(4, 2)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert numbers(document(trace)["steps"]["recorded"]) == [bool(s.backwards) for s in trace.steps]
    assert [bool(s.backwards) for s in trace.steps] == [i in (0, 3, 6) for i in range(8)]


def test_numbers_that_json_does_not_know():
    assert columns.clean({"a": [math.nan, math.inf, -math.inf, 1.5], 2: object}) == {
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "2": str(object),
    }
    for norms in ([None, 1e300, math.inf, 0.0], [1e-50, 1.0], [0.5, 0.0, None, math.inf]):
        assert numbers(columns.norms(norms)) == [-1.0 if v is None else v for v in norms]
    assert columns.norms([0.5])["t"] == "f32" and columns.norms([1e-40])["t"] == columns.norms([1e300])["t"] == "f64"


def test_a_range_of_steps_is_exact_where_the_whole_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "MAX_NORMS", 100)
    writer = Writer(tmp_path / "run", {})
    for i in range(90):
        stats = (ParameterStat("b.w", 2.0, float(i), 0.5), ParameterStat("a.w", 1.0, 100.0 + i, None))
        writer.step(Step(2 * i, 0.1, None, (), stats), 0, lambda: ())
    writer.close(Facts(), [])
    source = Source(tmp_path / "run")
    whole = json.loads(gzip.decompress(source.data()))
    part = json.loads(gzip.decompress(source.span(30, 70)))
    assert not whole["steps"]["series"]["exact"] and part["series"]["exact"]
    assert numbers(part["index"]) == [2 * i for i in range(30, 70)]
    names = [p["name"] for p in whole["parameters"]]
    high = numbers(part["series"]["gradient"]["high"])
    assert high[names.index("b.w") :: 2] == [float(i) for i in range(30, 70)]
    assert high[names.index("a.w") :: 2] == [100.0 + i for i in range(30, 70)]
    assert numbers(json.loads(gzip.decompress(source.span(85, 1000)))["index"]) == [170, 172, 174, 176, 178]


def test_parameters_that_only_steps_name_are_there():
    modules = Modules([], ["a", "b"])
    parameters = Parameters([], ["b.w", "a.w"], modules)
    assert parameters.names == ["a.w", "b.w"] and parameters.of("b.w") == 1


def test_memory_equals_that_of_the_run(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.replace("nn.Linear(3, 1)", "nn.Sequential(nn.Linear(3, 64), nn.Tanh())"))
    env = {**os.environ, "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--check", "memory", "--out", "run", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600, env=env)
    trace = open_run(tmp_path / "run")
    memory = document(trace)["memory"]
    # The square keeps what tanh gave, tanh its own result: one storage of 2 x 64 floats.
    assert memory["total"] == sum(e.nbytes for e in trace.facts.one(SavedMemory).entries if not e.holder) >= 2 * 64 * 4
    assert sum(row["bytes"] for row in memory["rows"]) == memory["total"]
    assert memory["step"] == trace.facts.one(SavedMemory).step
    curve = numbers(memory["curve"])
    assert curve[0] == memory["total"] and curve[-1] == 0 and curve == sorted(curve, reverse=True)
    seen = trace.facts.one(SavedMemory)
    assert {m.order: m.nbytes for m in seen.curve} == {m.order: curve[m.order + 1] for m in seen.curve}


HOSTILE = '</script><script>alert("1")</script>&\'\u202e'


def test_nothing_of_a_run_becomes_html(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    model._modules[HOSTILE] = nn.Linear(2, 1)
    with backprobe.trace(model) as trace:
        model(torch.ones(1, 2)).sum().backward()
    file = trace.report(tmp_path / "x.html")
    text = file.read_text()
    assert "alert(" not in text
    assert HOSTILE in [m["path"] for m in data_of(file)["modules"]]
    assert "alert(" not in trace._repr_html_() and trace._repr_html_().startswith("<iframe sandbox=")


SCRIPT = """
import torch
from torch import nn
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    loss = model(torch.ones(2, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--out", "run", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
    subprocess.run(command, cwd=folder, check=True, timeout=600, env=env)
    (folder / "train.py").write_text("# another script by now\n")
    return folder


def test_the_command_writes_one_small_file(kept, capsys, monkeypatch):
    from backprobe.commands import main

    monkeypatch.chdir(kept)
    assert main(["report", "run"]) == 0
    file = kept / "run" / "report.html"
    assert capsys.readouterr().out.startswith(f"run{os.sep}report.html (")
    assert file.stat().st_size < 1_000_000
    made = data_of(file)
    assert made["run"]["script"] == "train.py" and not made["run"]["cut"] and not made["run"]["live"]
    # The source is the one that ran, and paths are from the folder that it ran in.
    mine, *others = made["sources"]
    assert (mine["file"], mine["library"]) == ("train.py", False)
    for kept, ran in zip(mine["lines"], SCRIPT.splitlines(), strict=False):
        assert kept in (ran, NOT_KEPT)
    assert sum(line != NOT_KEPT for line in mine["lines"]) > 3
    assert [(one["file"], one["library"]) for one in others] == [("torch/nn/modules/linear.py", True)]
    assert {s["file"] for s in made["sites"]} == {"train.py", "torch/nn/modules/linear.py"}


def test_unwritable_pages_are_reported(kept):
    trace = backprobe.load_run(kept / "run")
    with pytest.raises(BackprobeError, match=r"cannot write the report to .*nowhere"):
        trace.report(kept / "nowhere" / "x.html")


def test_a_report_is_written_without_torch(kept):
    read = (
        "import sys\nfrom backprobe.commands import main\n"
        "assert main(['report', 'run', '-o', 'x.html']) == 0\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", read], cwd=kept, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def server(kept):
    with Server(kept / "run") as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(address, host=None):
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def test_the_page_is_served_to_those_with_the_token(server):
    base, token = f"http://127.0.0.1:{server.server_port}", server.token
    status, body, headers = ask(server.address)
    assert status == 200 and f'content="{token}"'.encode() in body and headers["Cache-Control"] == "no-store"
    status, body, _ = ask(f"{base}/data?token={token}")
    assert status == 200 and json.loads(gzip.decompress(body))["run"]["name"] == "run"
    since = json.loads(gzip.decompress(body))["version"]
    assert since and ask(f"{base}/data?token={token}&since={since}")[:2] == (204, b"")
    for path in ("/", "/data", f"/data?since={since}", "/data?token=wrong", "/?token=%C3%BC"):
        assert ask(base + path)[0] == 403
    assert ask(f"{base}/data?token={token}", host="evil.example:80")[0] == 403
    assert ask(f"{base}/other?token={token}")[0] == 404
    status, body, _ = ask(f"{base}/steps?token={token}&from=1&to=3")
    assert status == 200 and numbers(json.loads(gzip.decompress(body))["index"]) == [1, 2]
    for wrong in ("", "&from=2&to=2", "&from=-1&to=3", "&from=a&to=b"):
        assert ask(f"{base}/steps?token={token}{wrong}")[0] == 400
    assert server.server_address[0] == "127.0.0.1"


def test_a_run_that_goes_on_is_served_as_it_is(tmp_path):
    writer = Writer(tmp_path / "run", {"pid": os.getpid(), "machine": __import__("platform").node()})
    with Server(tmp_path / "run") as server:
        first = json.loads(gzip.decompress(server.source.data()))
        assert first["run"]["live"] and first["run"]["cut"] and numbers(first["steps"]["index"]) == []
        before = server.source.version()
        writer.step(Step(0, 0.1, 2.5, (), ()), 0, lambda: ())
        assert server.source.version() != before
        second = json.loads(gzip.decompress(server.source.data()))
        assert numbers(second["steps"]["loss"]) == [2.5]
        writer.put({"steps": 1})
        writer.close(Facts(), [])
        last = json.loads(gzip.decompress(server.source.data()))
        assert not last["run"]["live"] and not last["run"]["cut"]


def test_a_run_that_was_killed_is_not_live(tmp_path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    Writer(tmp_path / "run", {"pid": done.pid, "machine": __import__("platform").node()}).commit()
    run = document(open_run(tmp_path / "run"))["run"]
    assert run["cut"] and not run["live"]


@pytest.mark.parametrize("port", ["x", "70000", "-1"])
def test_a_port_that_is_none(port, capsys):
    from backprobe.commands import main

    assert main(["view", "--port", port]) == 2
    assert "is not a port" in capsys.readouterr().err or port == "-1"


def test_a_port_that_is_taken(kept):
    with Server(kept / "run") as first, pytest.raises(BackprobeError, match=f"listen on port {first.server_port}"):
        Server(kept / "run", first.server_port)


def test_memory_over_time_equals_that_of_the_steps(tmp_path):
    history = []
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            loss = model(torch.ones(2, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
            history.append(loss)
    trace.save(tmp_path / "run")
    for one in (trace, backprobe.load_run(tmp_path / "run")):
        steps = document(one)["steps"]
        rows = [s.record for s in one.steps]
        assert numbers(steps["graphs"]) == [r.graphs for r in rows] == [0, 0, 1, 2, 3, 4]
        assert numbers(steps["resident"]) == [-1 if r.resident is None else r.resident for r in rows]
        assert all(r.resident is None or r.resident > 1 << 20 for r in rows)
        if sys.platform == "linux":
            assert None not in [r.resident for r in rows]
        assert all(r.allocated is None for r in rows) or torch.cuda.is_available()
