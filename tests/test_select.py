"""One way to choose, wherever something is chosen."""

import re

import pytest

from backprobe.errors import BackprobeError
from backprobe.select import chosen, described, selector

NAMES = ["encoder", "encoder.layer.0", "encoder.layer.0.output", "encoder.layer.1", "head"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (None, NAMES),
        ("head", ["head"]),
        ("encoder.layer.*", NAMES[1:4]),
        ("encoder.layer.?", ["encoder.layer.0", "encoder.layer.1"]),
        (re.compile(r"\.\d$"), ["encoder.layer.0", "encoder.layer.1"]),
        (lambda name, thing: name.count(".") == 3, ["encoder.layer.0.output"]),
        (["head", re.compile("^encoder$")], ["encoder", "head"]),
    ],
)
def test_forms(select, expected):
    assert chosen(NAMES, select, "module") == expected


def test_the_thing_reaches_a_predicate():
    assert selector(lambda name, thing: thing == 3)("x", 3)


def test_nothing_chosen_names_what_is_alike():
    with pytest.raises(BackprobeError, match=r"no module fits 'encoder.layers.0'; names are like 'encoder.layer.0'"):
        chosen(NAMES, "encoder.layers.0", "module")
    with pytest.raises(BackprobeError, match="no module fits 'x'; there is none at all"):
        chosen([], "x", "module")


def test_what_cannot_select():
    with pytest.raises(BackprobeError, match="cannot select by int"):
        selector(3)


def test_described():
    assert described(["a.*", re.compile("b")]) == "['a.*', re.compile('b')]"
    assert described(None) == "everything"
