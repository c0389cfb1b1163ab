"""Selectors: one syntax for every option and function that selects nodes, modules or parameters."""

import re

import pytest

from backprobe.basics.errors import BackprobeError
from backprobe.basics.select import chosen, described, near, selector

NAMES = ["encoder", "encoder.layer", "encoder.layer.0", "encoder.layer.0.output", "encoder.layer.1", "head"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (None, NAMES),
        ("head", ["head"]),
        ("encoder.layer.*", NAMES[2:5]),
        ("encoder.{*}", ["encoder.layer"]),
        ("encoder.layer.{*}", ["encoder.layer.0", "encoder.layer.1"]),
        ("{*}.layer.{*}.out*", ["encoder.layer.0.output"]),
        ("*{*}put", ["encoder.layer.0.output"]),
        ("enc{*}", ["encoder"]),
        ("encoder.layer.?", ["encoder.layer.0", "encoder.layer.1"]),
        (re.compile(r"\.\d$"), ["encoder.layer.0", "encoder.layer.1"]),
        (lambda name, thing: name.count(".") == 3, ["encoder.layer.0.output"]),
        (["head", re.compile("^encoder$")], ["encoder", "head"]),
    ],
)
def test_forms(select, expected):
    assert chosen(NAMES, select, "module") == expected


def test_a_predicate_gets_the_item():
    assert selector(lambda name, thing: thing == 3)("x", 3)


def test_an_empty_selection_names_similar_names():
    with pytest.raises(BackprobeError, match=r"no module fits 'encoder.layers.0'; names are like 'encoder.layer.0'"):
        chosen(NAMES, "encoder.layers.0", "module")
    with pytest.raises(BackprobeError, match="no module fits 'x'; there is none at all"):
        chosen([], "x", "module")


def test_invalid_selectors():
    with pytest.raises(BackprobeError, match="cannot select by int"):
        selector(3)


def test_described():
    assert described(["a.*", re.compile("b")]) == "['a.*', re.compile('b')]"
    assert described(None) == "everything"


def test_each_part_that_selects_nothing_is_reported():
    with pytest.raises(BackprobeError) as error:
        chosen(NAMES, ["head", "encodr", [re.compile("zz")]], "module")
    assert str(error.value) == (
        "no module fits ['encodr', re.compile('zz')] (of ['head', 'encodr', re.compile('zz')]); "
        "names are like 'encoder', 'encoder.layer'"
    )
    with pytest.raises(BackprobeError, match=r"no module fits 'x' \(of \['head', 'x'\]\)"):
        chosen(NAMES, ("head", "x"), "module")
    with pytest.raises(BackprobeError, match=r"no module fits \[\]"):
        chosen(NAMES, [], "module")
    assert chosen(NAMES, ["*", "head"], "module") == NAMES  # one that chooses nothing new chose something


def test_similar_names():
    assert near("outptu", NAMES) == ["encoder.layer.0.output"]
    assert near("haed", NAMES) == ["head"]
    assert near("qqq", NAMES) == NAMES[:3]
    assert near("x", []) == []
