"""The page of compared runs: its document on records written by hand, and of real runs; groups; steps of one run."""

from __future__ import annotations

import base64
import gzip
import json
import re
import textwrap
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tapes import tape
from torch import nn

import backprobe
from backprobe.basics.errors import BackprobeError
from backprobe.commands import main
from backprobe.commands.compare import judge_of
from backprobe.comparing.compared import compare
from backprobe.comparing.files import read_tape, tape_folder
from backprobe.comparing.groups import describe_groups, groups
from backprobe.comparing.sides import Side
from backprobe.comparing.steps import only_step
from backprobe.records import Finding, Print, Site, Taken, TapeOp
from backprobe.report import paired
from backprobe.report.comparison import document, side_by_side
from backprobe.report.paired import AGREES, DIFFERS, ONLY_A, ONLY_B, SAME

_CODES = {"f32": "f", "f64": "d", "i32": "i", "u8": "B"}


def unpacked(value):
    """A document with its columns as lists."""
    if isinstance(value, dict) and set(value) == {"t", "b"}:
        made = array(_CODES[value["t"]])
        made.frombytes(base64.b64decode(value["b"]))
        return made.tolist()
    if isinstance(value, dict):
        return {key: unpacked(one) for key, one in value.items()}
    return [unpacked(one) for one in value] if isinstance(value, list) else value


def made(a, b, judge=None) -> dict:
    """The only comparison of the document of two tapes."""
    sides = [Side("A", Path("A"), a), Side("B", Path("B"), b)]
    whole = document(sides, [compare(a, b, judge)])
    json.dumps(whole, allow_nan=False)
    assert whole["title"] == "A and B" and [side["name"] for side in whole["sides"]] == ["A", "B"]
    return unpacked(whole)["comparisons"][0]


def inside(file: Path) -> dict:
    """The document in a page."""
    found = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', file.read_text())
    return unpacked(json.loads(gzip.decompress(base64.b64decode(found[1]))))


def named(one: dict, row: int, side: str, what: str = "name") -> str | None:
    at = one["ops"][side][what][row]
    return None if at < 0 else one["ops"]["strings"][at]


# The document, of records written by hand


def test_partners_are_one_row_and_the_op_that_differs_is_marked() -> None:
    one = made(tape("mm", "mul@2", "relu"), tape("mm", "mul@3", "relu"))
    ops = one["ops"]
    assert [named(one, n, "a") for n in range(4)] == ["mm", "mul", "relu", "gradient"]
    assert ops["state"][0] == SAME and ops["distance"][0] == 0.0
    assert ops["suspect"] == 1 and ops["state"][1] == DIFFERS and ops["distance"][1] > 0
    assert [named(one, 1, side, "arguments") for side in "ab"] == ["(tensor 0, 2.0)", "(tensor 0, 3.0)"]
    assert one["verdict"] == "differs" and one["blame"]["row"] == 1 and not one["calculated"]
    assert "called differently" in one["blame"]["what"]
    assert [one["blame"][side]["arguments"] for side in "ab"] == ["(tensor 0, 2.0)", "(tensor 0, 3.0)"]
    assert one["sites"][0][ops["a"]["site"][1]]["line"] == 11
    # What relu took is from the op before it.
    start, tensors = ops["start"], ops["tensors"]
    assert tensors["kind"][start[2] : start[3]] == [0, 1] and tensors["a"]["from"][start[2]] == 1
    assert ops["strings"][tensors["a"]["word"][start[2]]] == "2 float32"


def test_an_op_of_one_side_has_nothing_of_the_other() -> None:
    a, b = tape("mm", "mul@2", "relu", "sum"), tape("mm", "relu", "sum")
    one = made(a, b)
    row = one["ops"]["state"].index(ONLY_A)
    assert (named(one, row, "a"), named(one, row, "b")) == ("mul", None)
    assert one["ops"]["distance"][row] == -1 and one["alone"] == [1, 0] and one["blame"]["b"] is None
    assert ONLY_B in made(b, a)["ops"]["state"]


def test_equal_runs_have_the_same_bits_everywhere() -> None:
    one = made(tape("mm", "relu"), tape("mm", "relu"))
    assert one["verdict"] == "identical" and one["blame"] is None and one["ops"]["suspect"] == -1
    assert set(one["ops"]["state"]) == {SAME}


def test_modules_have_the_last_of_their_results() -> None:
    one = made(tape("mm", "relu", module="layer"), tape("mm", "relu", module="layer"))
    assert one["ops"]["flow"] == {"step": [0], "phase": [0], "row": [1]}
    assert named(one, 1, "a", "module") == "layer"


def test_a_page_is_bounded_and_keeps_the_differences(monkeypatch) -> None:
    a, b = tape(*["relu"] * 40, "mul@2", "exp"), tape(*["relu"] * 40, "mul@3", "exp")
    found = compare(a, b)
    sites = paired.Sites(None), paired.Sites(None)
    few = paired.Paired(a, b, found, sites, 10)
    assert few.count == 43 and len(few.rows) == 10
    assert [x.name for x, _ in few.rows][-3:] == ["mul", "exp", "gradient"]
    shown = unpacked(few.document())
    assert shown["suspect"] == 7 and len(shown["state"]) == 10 and len(shown["start"]) == 11
    assert max(shown["tensors"]["a"]["from"]) < 10


def test_the_loss_of_a_step_is_what_backward_calls_began_from() -> None:
    one = tape("sum")
    prints = (*one.prints, Print((), "float32", "loss", 2.5, 0, (-2.5, 0.0)), Print((), "float32", "ones", 1.0))
    last = one.ops[-1].index
    ops = (
        *one.ops[:-1],
        TapeOp(last, 0, "backward", "ones_like", inputs=(Taken(len(prints) - 2, 0, 0),), outputs=(len(prints) - 1,)),
        TapeOp(last + 1, 0, "backward", "mul", inputs=(Taken(len(prints) - 1, last, 0),), outputs=(0,)),
    )
    with_loss = replace(one, ops=ops, prints=prints)
    assert made(with_loss, with_loss)["steps"] == [{"a": 0, "b": 0, "loss": [-2.5, -2.5]}]
    assert made(one, one)["steps"][0]["loss"] == [None, None]


def test_what_differs_before_is_in_two_columns() -> None:
    a = replace(tape("mm"), about={"versions": {"torch": "2.12", "python": "3.11"}})
    b = replace(tape("mm"), about={"versions": {"torch": "2.13", "python": "3.11"}})
    one = made(a, b)
    assert one["early"] == [{"what": "torch", "a": "2.12", "b": "2.13", "of": ""}]
    assert one["same"] == [["versions", "python", "3.11"]]


def test_lines_of_two_files_stand_beside_each_other() -> None:
    a = [(4, "def f(x):"), (5, "    y = x * 2"), (6, "    return y")]
    b = [(9, "def f(x):"), (10, "    # less"), (11, "    y = x * 3"), (12, "    return y")]
    rows = side_by_side(a, b)
    assert [row["state"] for row in rows] == ["same", "changed", "b", "same"]
    assert rows[0] == {"a": [4, "def f(x):"], "b": [9, "def f(x):"], "state": "same"}
    assert rows[1]["a"] == [5, "    y = x * 2"] and rows[2]["a"] is None
    assert rows[-1]["a"][0] == 6 and rows[-1]["b"][0] == 12
    assert side_by_side([], []) == []


# Groups


def test_runs_that_agree_are_a_group_and_compared_with_its_first_only() -> None:
    bits = {0: "x", 1: "y", 2: "x", 3: "z", 4: "z'", 5: "z'"}
    asked = []

    def verdict(i: int, j: int) -> str:
        asked.append((i, j))
        if bits[i] == bits[j]:
            return "identical"
        return "rounding" if bits[i][0] == bits[j][0] else "differs"

    found = groups(6, verdict)
    assert [group.runs for group in found] == [[0, 2], [1], [3, 4, 5]]
    assert [group.bits for group in found] == [[[0, 2]], [[1]], [[3], [4, 5]]]
    assert (1, 2) not in asked
    text = "\n".join(describe_groups(found, "ABCDEF"))
    assert "1. A, C  (the same bits)" in text and "but for rounding: E, F  (the same bits)" in text
    assert "3 groups" in text
    assert describe_groups(groups(2, lambda i, j: "identical"), "AB")[-1] == "All runs calculate the same."
    assert [group.runs for group in groups(2, lambda i, j: "unseen")] == [[0], [1]]


# Real runs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.slope = nn.Linear(4, 8), nn.Linear(8, 2), 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(nn.functional.leaky_relu(self.a(x), self.slope))


def train(slopes=(0.1, 0.1, 0.1), dtype=torch.float32) -> tuple[list[float], list[list[torch.Tensor]]]:
    """Losses and gradients by step."""
    torch.manual_seed(0)
    model = Net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, gradients = [], []
    for slope in slopes:
        model.slope = slope
        loss = model(torch.randn(6, 4).to(dtype)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        gradients.append([p.grad.double().clone() for p in model.parameters()])
    return [float(one) for one in losses], gradients


def recorded(folder, **settings):
    with backprobe.trace(record_ops=folder):
        return train(**settings)


def test_distances_and_losses_are_those_of_the_runs(tmp_path) -> None:
    """Held against the gradients themselves: fingerprints tell distances within about a quarter."""
    one = recorded(tmp_path / "a")
    two = recorded(tmp_path / "b", slopes=(0.1, 0.3, 0.1))
    tapes = read_tape(tmp_path / "a"), read_tape(tmp_path / "b")
    shown = made(*tapes, judge_of(tape_folder(tmp_path / "a"), tape_folder(tmp_path / "b")))
    assert [step["loss"][0] for step in shown["steps"]] == pytest.approx(one[0], rel=1e-6)
    assert [step["loss"][1] for step in shown["steps"]] == pytest.approx(two[0], rel=1e-6)
    names = [name for name, _ in Net().named_parameters()]
    ops, seen = shown["ops"], 0
    for row in range(len(ops["state"])):
        if named(shown, row, "a") != "gradient":
            continue
        at = names.index(named(shown, row, "a", "module"))
        x, y = (run[1][ops["a"]["step"][row]][at] for run in (one, two))
        off = float((x - y).norm() / max(x.norm(), y.norm()))
        assert ops["distance"][row] == pytest.approx(off, rel=0.6, abs=1e-12)
        assert (ops["state"][row] == SAME) == torch.equal(x, y)
        seen += 1
    assert seen == 3 * len(names)
    assert shown["calculated"] and named(shown, ops["suspect"], "a") == "leaky_relu" and shown["steps"][1]["a"] == 1
    assert ops["a"]["step"][ops["suspect"]] == 1
    # The lines around it are those of this file.
    here = next(row for row in shown["blame"]["lines"] if row["a"][0] == shown["blame"]["a"]["line"])
    assert here["state"] == "same" and "leaky_relu(self.a(x), self.slope)" in here["a"][1]


def test_rounding_agrees_in_float64(tmp_path) -> None:
    recorded(tmp_path / "a"), recorded(tmp_path / "b", dtype=torch.bfloat16)
    tapes = read_tape(tmp_path / "a"), read_tape(tmp_path / "b")
    shown = made(*tapes, judge_of(tape_folder(tmp_path / "a"), tape_folder(tmp_path / "b")))
    assert shown["verdict"] == "rounding" and shown["ops"]["suspect"] == -1
    assert AGREES in shown["ops"]["state"] and DIFFERS not in shown["ops"]["state"]
    assert {"what", "a", "b", "of"} == set(shown["early"][0]) and shown["early"][0]["a"] == "float32"


SCRIPT = textwrap.dedent(
    """
    import sys, torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LeakyReLU(float(sys.argv[1])), torch.nn.Linear(8, 2))
    model.to(getattr(torch, sys.argv[2]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.randn(6, 4).to(model[0].weight.dtype)).square().mean().backward()
        optimizer.step()
    """
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    for name, given in (("a", "0.1 float32"), ("b", "0.3 float32"), ("c", "0.1 bfloat16"), ("d", "0.1 float32")):
        out = str(folder / name)
        assert main(["run", "--quiet", "--record-ops", "--out", out, str(script), *given.split()]) == 0
    return folder


def test_the_command_writes_a_page(runs, capsys) -> None:
    file = runs / "two.html"
    assert main(["compare", str(runs / "a"), str(runs / "b"), "--html", str(file)]) == 1
    said = capsys.readouterr().out
    assert "The first that differs" in said and f"{file} (" in said.splitlines()[-1]
    text = file.read_text()
    assert "<title>" in text and not re.search(r'(src|href)="https?:', text)
    whole = inside(file)
    one = whole["comparisons"][0]
    assert whole["kind"] == "comparison" and whole["sides"][0]["script"].endswith("0.1 float32") and not whole["groups"]
    assert one["blame"]["a"]["module"] == "1" and one["early"][0]["what"] == "negative_slope"
    assert "train.py" in one["blame"]["a"]["file"] and any(row["a"] for row in one["blame"]["lines"])


def test_json_stays_json_with_a_page(runs, capsys) -> None:
    file = runs / "json.html"
    assert main(["compare", str(runs / "a"), str(runs / "d"), "--json", "--html", str(file)]) == 0
    done = capsys.readouterr()
    assert json.loads(done.out)["verdict"] == "identical" and str(file) in done.err


def test_many_runs_list_which_agree(runs, capsys) -> None:
    names = [str(runs / name) for name in "abcd"]
    file = runs / "many.html"
    assert main(["compare", *names, "--html", str(file)]) == 1
    said = capsys.readouterr().out
    assert f"1. {names[0]}, {names[3]}  (the same bits)" in said and f"but for rounding: {names[2]}" in said
    whole = inside(file)
    assert [group["runs"] for group in whole["groups"]] == [[0, 2, 3], [1]]
    assert [one["verdict"] for one in whole["comparisons"]] == ["differs", "rounding", "identical"]
    assert main(["compare", *names, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["groups"][0] == {"runs": [names[0], names[2], names[3]], "bits": [[names[0], names[3]], [names[2]]]}
    assert [one["b"] for one in found["comparisons"]] == names[1:]


def test_a_page_that_cannot_be_written_is_reported(runs, capsys) -> None:
    assert main(["compare", str(runs / "a"), str(runs / "d"), "--html", str(runs / "no" / "x.html")]) != 0
    assert "cannot write" in capsys.readouterr().err


def test_findings_of_both_are_side_by_side() -> None:
    from backprobe import Trace
    from backprobe.report.comparison import _findings

    class Seen:
        def __init__(self, *findings: Finding) -> None:
            self.findings = findings

    def finding(kind: str, module: str | None = None) -> Finding:
        return Finding(kind, "warning", f"{kind} here", "certain", module=module)

    a: Trace = Seen(finding("one"), finding("two", "m"))  # type: ignore[assignment]
    b: Trace = Seen(finding("one"), finding("two", "n"))  # type: ignore[assignment]
    rows = _findings(a, b)
    assert [(row["kind"], row["module"], row["a"], row["b"]) for row in rows] == [
        ("two", "m", True, False),
        ("two", "n", False, True),
        ("one", None, True, True),
    ]
    assert _findings(None, None) == []


# Two steps of one run


def test_a_step_alone_takes_what_was_before_it_from_outside() -> None:
    one = tape("mm", "mul@2", "relu", "exp")
    # Two steps: the second begins with relu, which takes what the first one's mul gave.
    ops = [replace(op, step=int(op.index > 1)) for op in one.ops]
    two = replace(one, ops=tuple(ops), steps=({"step": 0}, {"step": 1}))
    alone = only_step(two, 1)
    assert [op.name for op in alone.ops] == ["relu", "exp", "gradient"] and [s["step"] for s in alone.steps] == [1]
    assert alone.ops[0].inputs[0].outside and alone.ops[0].inputs[0].source == (2, -1)
    assert alone.ops[1].inputs[0].source == (2, 0)
    with pytest.raises(BackprobeError, match="step 7 was not recorded to be compared: there are 0, 1"):
        only_step(two, 7)


def test_what_was_written_before_a_step_is_one_tensor_in_it() -> None:
    site = Site("train.py", 1, "f", "")
    prints = tuple(Print((2,), "float32", str(n), 1.0, 0, (1.0,)) for n in range(4))
    given = {"site": site, "outputs": (3,)}
    ops = (
        TapeOp(0, 0, "optimizer", "add_", inputs=(Taken(0, 0, -1, None, "w"),), **given),
        TapeOp(1, 1, "forward", "mul", inputs=(Taken(1, 0, -1, 0, "w"),), **given),
        TapeOp(2, 1, "forward", "exp", inputs=(Taken(1, 0, -1, 0, "w"),), **given),
        TapeOp(3, 1, "optimizer", "add_", inputs=(Taken(1, 0, -1, 0, "w"),), **given),
        TapeOp(4, 1, "sink", "weight", "w", inputs=(Taken(2, 0, -1, 3, "w"),)),
    )
    two = replace(tape("mm"), ops=ops, prints=prints, steps=({"step": 0}, {"step": 1}))
    alone = only_step(two, 1)
    assert [op.inputs[0].source for op in alone.ops] == [(1, -1)] * 4
    assert [op.inputs[0].writer for op in alone.ops] == [None, None, None, 3]
    assert alone.start == {"w": 1}


def test_two_steps_that_calculate_the_same(tmp_path, capsys) -> None:
    recorded(tmp_path / "a")
    for step, other in (("0", "1"), ("1", "2"), ("2", "0")):
        assert main(["compare", str(tmp_path / "a"), "--step", step, "--with-step", other]) == 0
        said = capsys.readouterr().out
        assert "The same calculation, of other tensors" in said and "weights at the start: 4 of 4 differ" in said


def test_what_a_step_does_otherwise_is_named(tmp_path, capsys) -> None:
    recorded(tmp_path / "a", slopes=(0.1, 0.1, 0.3))
    file = tmp_path / "steps.html"
    given = ["--step", "1", "--with-step", "2", "--html", str(file)]
    assert main(["compare", str(tmp_path / "a"), *given]) == 1
    said = capsys.readouterr().out
    assert "leaky_relu" in said and "called with (tensor 0, 0.1) and (tensor 0, 0.3)" in said
    whole = inside(file)
    assert [side["steps"] for side in whole["sides"]] == [[1], [2]] and not whole["comparisons"][0]["given"]
    assert whole["sides"][1]["name"].endswith("a, step 2")
    # The same step of two runs: all is as of two runs.
    recorded(tmp_path / "b", slopes=(0.1, 0.1, 0.1))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--step", "1"]) == 0
    assert "Identical" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--with-step", "2"], "--step N --with-step M"),
        (["--step", "1"], "name two runs"),
        (["--step", "1", "--with-step", "9"], "step 9 was not recorded"),
        (["--step", "0", "--with-step", "1", "--estimate"], "only calculating them again"),
    ],
)
def test_steps_that_cannot_be_compared_are_reported(tmp_path, capsys, given, said) -> None:
    recorded(tmp_path / "a")
    assert main(["compare", str(tmp_path / "a"), *given]) != 0
    assert said in capsys.readouterr().err


def test_steps_whose_tensors_were_not_kept_are_not_compared(tmp_path, capsys) -> None:
    recorded(tmp_path / "a")
    for file in (tmp_path / "a").rglob("*.safetensors"):
        file.unlink()
    assert main(["compare", str(tmp_path / "a"), "--step", "0", "--with-step", "1"]) != 0
    assert re.search(r"\d+ tensors that it was given were not kept", capsys.readouterr().err)
