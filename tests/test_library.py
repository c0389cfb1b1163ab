"""Lines of libraries between the user's line and an op: kept for each node, stored, and shown."""

from __future__ import annotations

import importlib
import io
import linecache
import sys
import traceback
import types
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from watching import watched

import backprobe
from backprobe.report.document import document
from backprobe.source import frames
from backprobe.source.excerpts import sources

#: Helpers that are called from two lines, through one another, in a module and outside.
LIBRARY = """\
import torch

def inner(x):
    return x.exp()

def outer(x, n):
    return outer(x, n - 1) if n else inner(x)

class Twice(torch.nn.Module):
    def forward(self, x):
        a = inner(x)
        b = inner(a)
        return torch.nn.functional.relu(outer(b, 2))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = Twice()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        x = self.twice(self.linear(x))
        return self.twice(x)

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2

def loss(x):
    x = Cube.apply(x)
    y = inner(x)
    return inner(y).sum()
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library, which lies in a folder of libraries."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "deepnet.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    folders = frames._library_folders()
    monkeypatch.setattr(frames, "_library_folders", lambda: (*folders, f"{folder.resolve()}/"))
    yield importlib.import_module("deepnet")
    del sys.modules["deepnet"]


@pytest.fixture
def gpt():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 20, "n_positions": 8}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


IDS = torch.arange(12).view(2, 6)


class Naive(TorchFunctionMode):
    """A slow reference for the call recorder: the complete stack of each op that makes nodes, by sequence number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.autograd._get_sequence_nr()
        self.made: dict[int, list[str]] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before = torch.autograd._get_sequence_nr()
        out = func(*args, **(kwargs or {}))
        after = torch.autograd._get_sequence_nr()
        if after > before:
            found = self._stack(sys._getframe(1))
            self.made.update((seq - self.first, found) for seq in range(before, after))
        return out

    @staticmethod
    def _stack(frame) -> list[str]:
        found: list[str] = []
        skip = False
        for one, line in traceback.walk_stack(frame):
            code = one.f_code
            if code.co_filename == __file__:
                break
            if skip or code.co_filename.endswith("torch/nn/modules/module.py"):
                skip = False
            elif code.co_name == "handle_torch_function":
                skip = True  # the op itself
            else:
                found.insert(0, f"{code.co_filename}:{line}")
        return found


def lines_of(trace, step: int) -> dict[int, list[str]]:
    (call,) = trace.steps[step].backwards
    return {n.node.seq: [str(site) for site in n.node.library] for n in call.nodes if n.node.site is not None}


@pytest.mark.parametrize("kind", ["library", "gpt"])
def test_they_are_those_of_a_naive_walk_in_every_step(kind, request) -> None:
    """Both in steps that are inspected closely and in others; calls that differ only in the middle stay distinct."""
    model = request.getfixturevalue(kind)
    if kind == "library":
        net, x = model.Net(), torch.rand(2, 3) / 50
        parameters = [*net.parameters()]
        run = lambda: model.loss(net(x))  # noqa: E731
    else:
        parameters = [*model.parameters()]
        run = lambda: model(IDS, labels=IDS).loss  # noqa: E731
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    with Naive() as naive:
        run()
    session, collector = watched()
    session.start()
    entries = []
    for _ in range(6):
        start = len(session.forward.recorder.log.entries)
        loss = run()
        entries.append(session.forward.recorder.log.entries[start:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.stop()
    trace = collector.trace(session)
    made = {seq: lines for seq, lines in naive.made.items() if seq in lines_of(trace, 0)}
    for step in range(6):
        found = lines_of(trace, step)
        # ``apply`` makes the node of a custom function, and no function mode gets that call.
        assert {seq: lines for seq, lines in found.items() if seq in made} == made
    assert len(made) > 10 and len({tuple(lines) for lines in made.values()}) > 8
    # Comparing graphs stays cheap: what comes back is the very object, but for what is made outside calls.
    for first, later in zip(entries[0], entries[-1], strict=True):
        assert first is later or (first[2] == "Function.apply" and first[4] is later[4])
    if kind == "library":
        call = trace.steps[0].backwards[0]
        (cube,) = [n.node for n in call.nodes if n.name == "CubeBackward"]
        assert [site.text for site in cube.library] == ["x = Cube.apply(x)"]
        exps = [n.node.library[-2].text for n in call.nodes if n.name == "ExpBackward0" and len(n.node.library) == 2]
        assert exps == ["return inner(y).sum()", "y = inner(x)"]


def test_the_users_own_line_has_none() -> None:
    x = torch.ones(2, requires_grad=True)
    with backprobe.trace() as trace:
        torch.nn.functional.relu(x.exp()).sum().backward()
    assert {n.node.library for n in trace.steps[0].backwards[0].nodes} == {()}


def test_they_are_stored_and_read(library, tmp_path) -> None:
    net = library.Net()
    with backprobe.trace(net) as trace:
        net(torch.rand(2, 3) / 50).sum().backward()
    trace.save(tmp_path / "run")
    (written,), (read,) = trace.steps[0].backwards, backprobe.load_run(tmp_path / "run").steps[0].backwards
    assert [n.node for n in read.nodes] == [n.node for n in written.nodes]
    assert any(len(n.node.library) > 3 for n in read.nodes)


def test_a_run_keeps_the_text_of_libraries_after_the_users(library, tmp_path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    known = frames.Frames((str(tmp_path),))
    spots = [(compile("x = 1", str(tmp_path / "train.py"), "exec"), 0), (library.inner.__code__, 0)]
    for spot in [*reversed(spots), (nn.Linear.forward.__code__, 0)]:
        known.site(spot)
    assert next(Path(file).name for file in sources(known)) == "train.py"
    assert {Path(file).name for file in sources(known)} == {"train.py", "deepnet.py", "linear.py"}


def test_a_page_has_them_with_the_files(library) -> None:
    net = library.Net()
    with backprobe.trace(net) as trace:
        net(torch.rand(2, 3) / 50).sum().backward()
    made = document(trace)
    layout, sites = made["layouts"][0], made["sites"]
    stacks = [[f"{sites[s]['file']}:{sites[s]['line']}" for s in stack] for stack in layout["stacks"]]
    assert ["deepnet.py:23", "deepnet.py:13", "deepnet.py:7", "deepnet.py:7", "deepnet.py:7", "deepnet.py:4"] in stacks
    files = [(source["file"].rpartition("/")[2], source["library"]) for source in made["sources"]]
    assert files[0] == ("test_library.py", False) and {*files[1:]} == {("deepnet.py", True), ("linear.py", True)}
    # One that is another now says nothing.
    Path(library.__file__).write_text("# new\n" + LIBRARY)
    linecache.checkcache()
    assert "deepnet.py" not in [source["file"] for source in document(trace)["sources"]]


def test_the_graph_is_asked_by_lines_of_libraries(library) -> None:
    net = library.Net()
    with backprobe.graph.recording(net) as recording:
        out = net(torch.rand(2, 3) / 50).sum()
    graph = recording.graph(out)
    assert [graph.type(i) for i in graph.at("deepnet.py:12")] == ["ExpBackward0"] * 2
    assert [node.library[0].line for node in graph.find(line="deepnet.py:4")] == [23, 23, 23, 22, 22, 22]
    assert graph.find(line="deepnet.py:5") == []


def talk(monkeypatch, capsys, lines, run) -> list[str]:
    """Type `lines` at the stops of a backward; return the answer to each."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*lines, "f"]) + "\n"))
    with backprobe.breakpoint_backward():
        run()
    return [part.strip("\n") for part in capsys.readouterr().out.split("(backprobe) ")[1:]]


def test_the_debugger_shows_and_stops_at_them(gpt, monkeypatch, capsys) -> None:
    path = sys.modules[type(gpt).__module__].__file__
    number = next(n for n, text in enumerate(linecache.getlines(path), 1) if "self.c_attn(hidden_states)" in text)
    place = f"modeling_gpt2.py:{number}"
    lines = [
        f"b {place}",
        "c",
        "l",
        "fr",
        "fr 1",
        "ll",
        "n",
        "l",
        "code",
        "w",
        "graph 1",
        "n",
        "fr 0",
        "l",
        "code mine",
    ]
    lines += ["b modeling_gpt2.py:1", "fr 99", "code his"]
    said = talk(monkeypatch, capsys, lines, lambda: gpt(IDS, labels=IDS).loss.backward())
    point, stop, mine, calls, chosen, whole, _, again, switched, way, graph, after, first, back, own = said[:15]
    assert point == f"breakpoint 1: line {place}"
    assert "SplitBackward0  in transformer.h.1.attn" in stop and f"line {place}" in stop
    # The default is the user's line, and stays it.
    assert "loss.backward())" in mine and "test_library.py" in again
    assert calls.startswith("->  0") and calls.splitlines()[-1].split()[1:3] == [
        f"transformers/models/gpt2/{place}",
        "in",
    ]
    assert [line[:2] for line in chosen.splitlines()[:3]] == ["  ", "->", "  "]
    assert "in wrapper" in whole.splitlines()[0] and "->" in whole
    assert switched.splitlines()[0] == "lines of libraries" and "pytorch_utils.py in forward" in switched
    assert f"modeling_gpt2.py:{number}" in way and "modeling_gpt2.py" in graph and "test_library" not in way + graph
    assert "transformers/pytorch_utils.py" in after.splitlines()[1]
    assert first.startswith("->  0") and "test_library.py" in back  # at this stop only
    assert own.startswith("your lines") and "test_library.py" in own
    bad, far, word = said[15:18]
    assert "it cannot stop in this backward: no node was made at modeling_gpt2.py:1; nodes were made at" in bad
    assert place in bad and "test_library" not in bad
    assert "0 to" in far and "'mine' or 'library', not 'his'" in word


def test_the_debugger_says_where_there_are_none(monkeypatch, capsys) -> None:
    x = torch.ones(2, requires_grad=True)
    lines = ["fr", "code library", "l", "n", "n", "fr", "ll", "l", "fr 0"]
    said = talk(monkeypatch, capsys, lines, lambda: x.exp().sum().backward())
    assert "->  0" in said[0] and "x.exp().sum().backward()" in said[1] and "x.exp().sum().backward()" in said[2]
    assert all("no line made it" in text for text in said[5:8]) and "fr takes" in said[8]


def test_the_innermost_line_that_is_not_torchs_is_shown(gpt) -> None:
    with backprobe.trace(gpt):
        stop = backprobe.debug(gpt(IDS, labels=IDS).loss).until(module="lm_head")
        place = stop.node.place
        last = place.library[-1]
        assert last.file.endswith("torch/nn/modules/linear.py") and last is place.lines[-1]
        shown = place.shown(True)
        assert shown is not None and place.lines[shown].file.endswith("modeling_gpt2.py")
        assert place.shown(False) == 0 and place.lines[0] is place.site
    linear = nn.Linear(2, 1)
    with backprobe.trace(linear):
        place = backprobe.debug(linear(torch.ones(1, 2)).sum()).until(module="").node.place
        place = backprobe.debug(linear(torch.ones(1, 2)).sum()).until("AddmmBackward0").node.place
    assert place.shown(True) == 1 == len(place.lines) - 1


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "mine"])
def test_packages_of_the_user_and_of_other_environments_are_libraries(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / folder))
    code = compile("x = 1", str(tmp_path / folder / "package" / "module.py"), "exec")
    assert frames.Frames().is_user(code) == (folder == "mine")


def test_a_file_that_a_library_wrote_and_loaded_under_its_own_name_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's script may be in the same folder, and the user's package may extend the library's."""
    package, mine = tmp_path / "site-packages" / "messages", tmp_path / "mine"
    package.mkdir(parents=True)
    mine.mkdir()
    (package / "__init__.py").write_text(f"__path__.append({str(mine)!r})\n")
    (mine / "extension.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(package.parent))
    written, script = tmp_path / "messages_propagate_4711.py", tmp_path / "train.py"
    written.write_text("x = 1\n")
    extension = importlib.import_module("messages.extension")
    for name, file in (("messages.propagate", written), ("train", script)):
        module = types.ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    known = frames.Frames((str(tmp_path),))
    assert known.is_users_file(str(script)) and known.is_users_file(str(extension.__file__))
    assert not known.is_users_file(str(written))
    for name in ("messages", "messages.extension"):
        del sys.modules[name]
