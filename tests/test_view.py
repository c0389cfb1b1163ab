"""Terminal output: gradient flow as bars, findings with the lines around, at any width, in ASCII if needed."""

from __future__ import annotations

import io
import math

import pytest

from backprobe.records import Finding, FindingSite, Site
from backprobe.view.flow import ROWS, flow, folded
from backprobe.view.parts import place, problem
from backprobe.view.terminal import write


def shown(parts, encoding="utf-8", width=None, monkeypatch=None):
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    write(parts, file)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_bars_are_logarithmic():
    bars = flow(["a.w", "b.w", "c.w"], {"a.w": 1e-4, "b.w": 1e-2, "c.w": 1.0})
    lengths = [row.length for row in bars.rows]
    assert lengths[2] == 1 and lengths[1] - lengths[0] == pytest.approx(lengths[2] - lengths[1])
    assert lengths[0] > 0
    assert [row.text for row in bars.rows] == ["0.0001", "0.01", "1"]
    assert bars.scale == "norms from 0.0001 to 1, logarithmic"


def test_what_is_no_size_is_said_in_words():
    bars = flow(["n.w", "z.w", "i.w", "k.w", "ok.w"], {"z.w": 0.0, "i.w": math.inf, "k.w": math.nan, "ok.w": 2.0})
    assert [(r.label, r.length is None, r.text) for r in bars.rows] == [
        ("n.w", True, "none"),
        ("z.w", True, "0 exactly"),
        ("i.w", True, "inf"),
        ("k.w", True, "nan"),
        ("ok.w", False, "2"),
    ]
    assert flow(["a"], {}).scale == ""


def test_many_parameters_are_folded_by_module():
    names = [f"blocks.{i}.{part}.{p}" for i in range(40) for part in ("attn", "mlp") for p in ("weight", "bias")]
    groups = folded(["emb.weight", *names, "head"])
    assert len(groups) <= ROWS
    assert list(groups)[:2] == ["emb to blocks.0", "blocks.1 to blocks.2"]  # 42 modules, two at a time
    assert [n for members in groups.values() for n in members] == ["emb.weight", *names, "head"]
    groups = folded([n for n in names if int(n.split(".")[1]) < 12])
    assert list(groups)[:3] == ["blocks.0.attn", "blocks.0.mlp", "blocks.1.attn"] and len(groups) == 24
    bars = flow(names, dict.fromkeys(names[:-1], 3.0))
    assert bars.rows[0].text == "8.49" and bars.rows[-1].text == "7.94"  # 3 * sqrt(8), 3 * sqrt(7)
    assert [r.note for r in bars.rows if r.note] == ["1 of 8 without gradient"]
    assert len(flow(names, {}, whole=True).rows) == 160


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("width", [30, 80, 200])
def test_bars_fit_and_need_no_special_sign(encoding, width, monkeypatch):
    names = ["encoder.layer.very_long_name_of_a_module.weight", "b"]
    text = shown([flow(names, {names[0]: 1e-3, "b": 5.0})], encoding, width, monkeypatch)
    assert all(len(line) <= width for line in text.splitlines())
    assert ("\u2588" in text) == (encoding == "utf-8") and ("#" in text) == (encoding != "utf-8")
    assert "\x1b" not in text


def a_finding(file, line, text):
    site = FindingSite("cause", Site(str(file), line, "forward", text))
    return Finding("nonfinite-forward", "error", "log gave NaN", "certain", "net", sites=(site, site), advice="Clamp.")


def test_the_first_line_is_shown_with_those_around_it(tmp_path, monkeypatch):
    file = tmp_path / "train.py"
    file.write_text("import torch\n\n\ndef forward(x):\n    y = x - 1\n    return y.log()\n\n\nforward(1)\n")
    monkeypatch.chdir(tmp_path)
    found = problem(1, a_finding(file, 6, "return y.log()"), {str(file): file.read_text()})
    text = shown([found], width=80, monkeypatch=monkeypatch)
    assert "4 def forward(x):\n" in text and "5     y = x - 1\n" in text and "> 6     return y.log()\n" in text
    assert text.count("y = x - 1") == 1  # round the first line only
    assert "train.py:6 in forward" in text


def test_a_file_that_changed_since_shows_the_line_that_ran(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("a = 1\nb = 2\nc = 3\n")
    site = Site(str(file), 2, "<module>", "loss.backward()")
    assert place("cause", site, {}, around=2).context == ()  # nothing is read of the file itself
    kept = {str(file): "x = 0\nloss.backward()\n"}
    assert place("cause", site, kept, around=2).context == [(1, "x = 0"), (2, "loss.backward()")]
    assert place("cause", Site("/nowhere.py", 3, "f", "x"), {}, around=2).context == ()


def test_signs_that_the_terminal_lacks_do_not_stop_it(tmp_path):
    text = shown([problem(1, a_finding("/nowhere/\u00fc.py", 1, "\u03b8 = 1"))], "ascii")
    assert "? = 1" in text
