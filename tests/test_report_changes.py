"""Incremental updates of a served page: applied to the old document they give the new one."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from array import array
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import backprobe
from backprobe.records import Facts, ParameterStat, Step
from backprobe.report import steps
from backprobe.report.calls import chosen
from backprobe.report.changes import change
from backprobe.report.columns import CODES, column
from backprobe.report.serve import MAX_DOCUMENTS, Source
from backprobe.store.writer import Writer
from backprobe.traces import TracedStep

#: Documents, how they changed, and what came of it: the page's own tests put these in too.
EXAMPLES = Path(__file__).parents[1] / "page" / "src" / "testing" / "changes.json"


def merged(old, made):
    """`old` with a change put into it, as the page does it."""
    what, *rest = made
    if what == "set":
        return rest[0]
    if what == "in":
        return {key: merged(value, rest[0][key]) if key in rest[0] else value for key, value in old.items()}
    if what == "more":
        count, tail = rest
        size = array(CODES[old["t"]]).itemsize
        kept = base64.b64decode(old["b"])[: count * size]
        return {"t": tail["t"], "b": base64.b64encode(kept + base64.b64decode(tail["b"])).decode()}
    items = []
    for part in rest[0]:
        if len(part) == 1:
            items.append(part[0])
        elif isinstance(part[1], int):
            items += old[part[0] : part[1]]
        else:
            items.append(merged(old[part[0]], part[1]))
    return items


def sent(value):
    return json.loads(json.dumps(value))


leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "0.5", -0.0, 0.0, 1.0, 1.5])
columns = st.builds(column, st.sampled_from("fdiB"), st.lists(st.sampled_from([0, 1, 2, 200]), max_size=6))
#: Evidence of third parties that looks like a column.
evidence = st.fixed_dictionaries({"t": st.sampled_from(["f32", "f64"]), "b": st.sampled_from(["", "AACAPw=="])})
documents = st.recursive(
    leaves | columns | evidence,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.fixed_dictionaries({"x": inner, "y": inner})
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(documents, documents)
def test_any_document_becomes_any_other(old, new):
    made = change(old, new)
    if made is None:
        assert json.dumps(old) == json.dumps(new)
    else:
        assert json.dumps(merged(sent(old), sent(made))) == json.dumps(new)


def grown(values, more):
    """A document of a run, and the same when `more` has come."""
    for count in (len(values), len(values) + len(more)):
        now = [*values, *more][:count]
        yield {
            "run": {"steps": count, "name": "run"},
            "calls": [{"step": i, "order": column("i", [i, i + 1])} for i in (0, count // 2, count - 1) if i >= 0],
            "steps": {"index": column("i", range(count)), "loss": column("d", now)},
            "notes": [{"t": "f32", "b": "AACAPw=="}] * (count % 3),
        }


numbers = st.lists(st.floats(allow_nan=True), max_size=8)


@given(numbers, numbers)
def test_only_the_new_end_of_a_growing_column_is_sent(values, more):
    old, new = grown(values, more)
    made = change(old, new)
    if not more:
        assert made is None
        return
    assert json.dumps(merged(sent(old), sent(made))) == json.dumps(new)
    what, kept, tail = made[1]["steps"][1]["loss"]
    assert (what, kept) == ("more", len(values))
    assert len(base64.b64decode(tail["b"])) == 8 * len(more)


def test_the_page_is_tested_with_what_is_sent():
    """Written anew where it is not there."""
    old, new = grown([2.0, float("nan")], [1.0, 0.5, 0.25])
    other = {**new, "calls": new["calls"][1:], "steps": {**new["steps"], "loss": column("f", [1.0]), "last": None}}
    whole = {"tensors": [column("B", [1, 2])], "findings": [{"evidence": {"t": "f32", "b": "AACAPw=="}}]}
    changed = {"tensors": [column("B", [1, 2, 255])], "findings": [{"evidence": {"t": "f32", "b": "AAAAAA=="}}]}
    made = [[a, change(a, b), b] for a, b in ((old, new), (new, old), (new, other), (whole, changed))]
    if not EXAMPLES.exists():
        EXAMPLES.write_text(json.dumps(made))
    assert json.loads(EXAMPLES.read_text()) == sent(made)


def unpacked(data):
    return json.loads(gzip.decompress(data))


def follow(source, shown):
    """A page that shows `shown` asks for news."""
    data = source.data(shown["version"])
    if data is None:
        return shown, 0
    found = unpacked(data)
    if "since" not in found:
        return found, len(data)
    assert found["since"] == shown["version"]
    return merged(shown, found["change"]), len(data)


GROWING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(24):
    x = torch.randn(4, 6)
    if step == 14:
        model.append(nn.Linear(3, 2))
        optimizer.add_param_group({"params": model[3].parameters()})
    if step == 20:
        x = x * float("nan")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, flush=True)
    sys.stdin.readline()
"""


def test_a_page_that_follows_a_run_has_the_same_document(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "MAX_NORMS", 64)  # it is thinned more and more
    (tmp_path / "train.py").write_text(GROWING)
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--out", "run", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
    run = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin and run.stdout
    with run:
        assert run.stdout.readline() == "0\n"
        source = Source(tmp_path / "run")
        shown, changes = unpacked(source.data()), 0
        for step in range(1, 24):
            print(file=run.stdin, flush=True)
            assert run.stdout.readline() == f"{step}\n"
            before = shown["version"]
            shown, size = follow(source, shown)
            changes += size > 0 and shown["version"] != before
            assert json.dumps(shown) == json.dumps(sent(source.latest()))
    assert run.returncode == 0 and changes > 12
    shown, _ = follow(source, shown)
    assert shown["run"]["steps"] == 24 and shown["findings"] and json.dumps(shown) == json.dumps(sent(source.latest()))
    assert follow(source, shown) == (shown, 0)


def test_a_page_that_missed_many_updates_gets_the_whole_document(tmp_path):
    writer = Writer(tmp_path / "run", {"started": 1.0})
    source = Source(tmp_path / "run")
    first = unpacked(source.data())
    for number in range(MAX_DOCUMENTS + 1):
        stats = (ParameterStat("a.w", 1.0, float(number), 0.5),)
        writer.step(Step(number, 0.1, 2.5, (), stats), 0, lambda: ())
        assert ("since" in unpacked(source.data(first["version"]))) == (number < MAX_DOCUMENTS)
    assert unpacked(source.data("another server's")) == unpacked(source.data()) == sent(source.latest())
    writer.close(Facts(), [])


def test_most_calls_that_are_shown_stay_while_a_run_grows():
    """A longer run adds at most one call between the first and last ones; if their distance doubles, some go."""
    before = set(chosen([TracedStep(Step(i, 0.1, None, ()), ()) for i in range(6)], []))
    for count in range(7, 400):
        shown = chosen([TracedStep(Step(i, 0.1, None, ()), ()) for i in range(count)], [])
        assert len(shown) == len(set(shown)) <= 8 and {0, 1, count - 2, count - 1} <= set(shown)
        between = sorted(set(shown) - {0, 1, count - 2, count - 1})
        assert not between or max(between) < count - 2
        new = set(between) - before
        assert len(new) <= 1
        before |= set(between)
