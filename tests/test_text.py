"""Formatting of numbers, sizes and tables."""

from __future__ import annotations

import math

import pytest

from backprobe.basics.text import counted, few, html_table, mib, number, shape, size, text_table


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (64, "64 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (4000, "3.91 KiB"),
        (150_000, "146 KiB"),
        (1 << 20, "1 MiB"),
        (5.5 * 2**30, "5.5 GiB"),
        (2000 * 2**30, "1.95 TiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_sizes(count: float, said: str) -> None:
    assert size(count) == said


def test_sizes_in_a_column() -> None:
    said = [mib(n) for n in (0, 1, 200, 2000, 1 << 20, 3 << 29)]
    assert said == ["0.00", "<0.0001", "0.0002", "0.0019", "1.00", "1536.00"]


def test_numbers() -> None:
    assert [number(x) for x in (None, 0.0, 1234.5, math.inf, math.nan)] == ["-", "0", "1.23e+03", "inf", "nan"]
    assert [counted(n, "node") for n in (0, 1, 1234)] == ["0 nodes", "1 node", "1,234 nodes"]
    assert few(["a", "b", "c"]) == "a, b, c" and few(["a", "b", "c"], 1) == "a and 2 more"
    assert [shape(s) for s in ((), (2,), (2, -1))] == ["scalar", "2", "2x?"] and shape((2, 3), " x ") == "2 x 3"


def test_tables() -> None:
    head, body = ("name", "norm"), [("a<b>", "1"), ("longer name", "12.5")]
    assert text_table(head, body, {1}).splitlines() == ["name         norm", "a<b>            1", "longer name  12.5"]
    assert text_table(head, body).splitlines()[1] == "a<b>         1"  # no space at the end
    assert text_table(head, []) == ""
    page = html_table(head, body, {1})
    assert "a&lt;b&gt;" in page and "<b>" not in page and page.count("<tr>") == 3
    assert page.count("text-align:right") == 3 == page.count("text-align:left")
