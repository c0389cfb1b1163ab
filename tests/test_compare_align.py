"""Pairing of two recorded runs, and blame, on records written by hand."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tapes import tape

from backprobe.basics.errors import BackprobeError
from backprobe.comparing.align import Aligner, Names
from backprobe.comparing.arguments import alike, same
from backprobe.comparing.compared import as_dict, compare
from backprobe.comparing.estimate import distance
from backprobe.comparing.files import TapeWriter, read_tape
from backprobe.comparing.text import report


def test_equal_runs_are_identical() -> None:
    one = tape("mm", "mul@2", "relu")
    found = compare(one, tape("mm", "mul@2", "relu"))
    assert found.verdict == "identical" and found.blame is None and found.pairs == 4


def test_an_op_called_differently_is_named() -> None:
    found = compare(tape("mm", "mul@2", "relu", "sum"), tape("mm", "mul@3", "relu", "sum"))
    assert found.blame is not None and found.blame.kind == "arguments"
    assert found.blame.a is not None and found.blame.a.name == "mul" and found.blame.a.site.line == 11
    text = report(found, "A", "B")
    assert "called with (tensor 0, 2.0) and (tensor 0, 3.0)" in text and "train.py:11" in text


@pytest.mark.parametrize("swap", [False, True])
def test_an_op_that_one_run_has_not_is_named(swap: bool) -> None:
    a, b = tape("mm", "mul@2", "relu", "sum"), tape("mm", "relu", "sum")
    found = compare(b, a) if swap else compare(a, b)
    assert found.blame is not None and found.blame.kind == "structure"
    one, two = (found.blame.b, found.blame.a) if swap else (found.blame.a, found.blame.b)
    assert one is not None and one.name == "mul" and two is None
    assert [op.name for op in found.alone[1 if swap else 0]] == ["mul"]


def test_an_op_that_one_run_has_not_and_that_changes_nothing_is_not_blamed() -> None:
    a, b = tape("mm", "relu", "sum"), tape("mm", "clone", "relu", "sum")
    prints = list(b.prints)
    for at, like in ((2, 1), (3, 2), (4, 3)):
        prints[at] = replace(a.prints[like], hash=a.prints[like].hash)
    found = compare(a, replace(b, prints=tuple(prints)))
    assert found.verdict == "identical" and [op.name for op in found.alone[1]] == ["clone"]


def test_rounding_that_grows_slowly_is_not_blamed() -> None:
    a = tape(*(["mul@2"] * 12))
    prints = [a.prints[0]] + [
        replace(p, hash=f"{p.hash}'", sketch=(p.sketch[0] * (1 + 1e-7 * 3**n), 0.0)) for n, p in enumerate(a.prints[1:])
    ]
    found = compare(a, replace(a, prints=tuple(prints)))
    assert found.verdict == "rounding"
    assert "estimated from fingerprints" in found.notes[0]
    jump = [*prints[:6], *(replace(p, sketch=(p.sketch[0] * 1.5, 0.0)) for p in prints[6:])]
    found = compare(a, replace(a, prints=tuple(jump)))
    assert found.blame is not None and found.blame.kind == "kernel"
    assert found.blame.a is not None and found.blame.a.index == 5


def test_modules_of_a_port_are_paired_by_a_table() -> None:
    a, b = tape("mm", "relu", module="encoder.layer.0"), tape("mm", "relu", module="h.0")
    table = Names([(r"^encoder\.layer\.", "h."), ("nothing", "else")])
    assert table.of("encoder.layer.11") == "h.11"
    assert Aligner(a, b, table).pairs() == [(0, 0), (1, 1), (2, 2)]


@given(st.lists(st.sampled_from(["mm", "add", "mul", "relu"]), max_size=30), st.data())
@settings(max_examples=150, deadline=None)
def test_pairs_are_in_order_and_as_many_as_can_be_where_one_run_is_part_of_the_other(names: list[str], data) -> None:
    left = data.draw(st.lists(st.integers(0, max(len(names) - 1, 0)), unique=True, max_size=len(names)))
    part = [name for at, name in enumerate(names) if at not in left]
    a, b = tape(*names), tape(*part)
    pairs = Aligner(a, b).pairs()
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    assert all(a.ops[i].name == b.ops[j].name for i, j in pairs)
    assert len(pairs) >= min(1, len(part)) + 1  # the gradient at the end too


@given(st.lists(st.tuples(st.sampled_from(["mm", "add", "mul"]), st.integers(0, 2)), max_size=20), st.data())
@settings(max_examples=150, deadline=None)
def test_any_two_runs_can_be_compared(one, data) -> None:
    two = data.draw(st.lists(st.tuples(st.sampled_from(["mm", "add", "mul"]), st.integers(0, 2)), max_size=20))
    a, b = (tape(*(f"{name}@{n}" for name, n in ops)) for ops in (one, two))
    found = compare(a, b)
    assert (found.verdict == "identical") == (one == two) or found.different
    assert found.pairs + len(found.alone[0]) == len(a.ops) and found.pairs + len(found.alone[1]) == len(b.ops)
    json.dumps(as_dict(found))
    report(found, "A", "B")


def test_ten_thousand_ops_are_paired_in_seconds() -> None:
    names = [f"{['mm', 'add', 'mul', 'relu'][i % 4]}@{i % 7}" for i in range(10_000)]
    a = tape(*names, values={i: f"v{i}" for i in range(10_000)})
    b = tape(*names[:5000], *names[5001:], values={i: f"w{i}" for i in range(10_000)})
    begin = time.process_time()
    pairs = Aligner(a, b).pairs()
    assert len(pairs) == 10_000 and time.process_time() - begin < 600
    assert [i for i in range(10_001) if i not in dict(pairs)] == [5000]


def test_arguments_are_the_same_whatever_the_dtype() -> None:
    one = ([{"t": 0}, 0.5, [1, 2]], {"dtype": {"dtype": "float32"}, "alpha": 1})
    assert same(one, ([{"t": 0}, 0.5, [1, 2]], {"alpha": 1}))
    assert not same(one, ([{"t": 0}, 0.5000001, [1, 2]], {"alpha": 1}))
    assert alike(one, ([{"t": 0}, 0.5000001, [1, 2]], {"alpha": 1}))
    assert not alike(one, ([{"t": 1}, 0.5, [1, 2]], {"alpha": 1}))


def test_distance_of_nothing() -> None:
    assert distance((), (), 0.0, 0.0) == 0.0 and distance((), (1.0,), 0.0, 1.0) == 1.0
    assert distance((1.0,), (1.0,), None, 1.0) is None


def test_a_tape_is_read_as_it_was_written(tmp_path) -> None:
    made = tape("mm", "mul@2", "relu")
    writer = TapeWriter(tmp_path)
    writer.about({"versions": {}})
    writer.step(0, {"step": 0, "start": {"w": 0}}, list(made.ops), list(made.prints))
    read = read_tape(tmp_path)
    assert read.prints == made.prints and read.start == {"w": 0}
    assert [replace(op, arguments=None) for op in read.ops] == [replace(op, arguments=None) for op in made.ops]
    assert compare(made, read).verdict == "identical"


def test_incomparable_runs_are_reported(tmp_path) -> None:
    with pytest.raises(BackprobeError, match="has nothing to compare: record it with"):
        read_tape(tmp_path)
    writer = TapeWriter(tmp_path)
    writer.about({})
    with pytest.raises(BackprobeError, match="no finished step"):
        read_tape(tmp_path)
    (writer.folder / "step-000000.json.gz").write_bytes(b"no gzip")
    with pytest.raises(BackprobeError, match="is damaged"):
        read_tape(tmp_path)
