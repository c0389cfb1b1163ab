"""Statistics by layer in the page's document: pictures, bounds, alarms, their size, what is sent of them."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
from array import array
from pathlib import Path

import pytest
from handmade import looked, parameter, traced
from learning import OPTIMIZER, STEP
from test_report_changes import merged, sent

from backprobe import Trace
from backprobe.records import Measured, Step
from backprobe.report.columns import CODES
from backprobe.report.document import document
from backprobe.report.levels import MAX_COLUMNS, MAX_VALUES
from backprobe.report.serve import Source
from backprobe.store.writer import Writer
from backprobe.traces import Steps


def numbers(column) -> list[float]:
    return list(array(CODES[column["t"]], base64.b64decode(column["b"])))


def kinds_of(levels) -> dict[str, dict]:
    return {kind["quantity"]: kind for kind in levels["kinds"]}


def measured(*looks: Measured) -> dict | None:
    trace = traced(STEP, seen=[OPTIMIZER], parameters=[parameter("a.weight"), parameter("b.weight")])
    assert isinstance(trace.steps, Steps)
    trace.steps.measured = looks
    return document(trace)["levels"]


def test_nothing_measured_is_null() -> None:
    assert measured() is None
    assert document(Trace())["levels"] is None


def test_numbers_are_where_they_were_measured() -> None:
    levels = measured(
        Measured(0, ("grad_norm|b.weight", "grad_norm|a.weight", "lr|Adam"), (1.0, 2.0, 0.5)),
        Measured(10, ("grad_norm|a.weight", "dead|act"), (math.nan, 0.25)),
        Measured(20, ("grad_norm|a.weight", "grad_norm|b.weight"), (math.inf, -4.0)),
    )
    assert numbers(levels["steps"]) == [0, 10, 20] and (levels["last"], levels["looks"], levels["width"]) == (20, 3, 1)
    kinds = kinds_of(levels)
    assert list(kinds) == ["dead", "grad_norm", "lr"]  # those to look at first
    norms = kinds["grad_norm"]
    assert norms["names"] == ["a.weight", "b.weight"]  # in forward order
    assert [repr(v) for v in numbers(norms["values"])] == ["2.0", "1.0", "nan", "-inf", "inf", "-4.0"]
    assert numbers(kinds["dead"]["values"]) == [-math.inf, 0.25, -math.inf]
    assert kinds["lr"]["names"] == ["Adam"] and kinds["lr"]["title"] == "learning rate"


@pytest.mark.parametrize("quantity", ["activation_rms", "headroom"])
def test_many_looks_are_put_together_and_nothing_extreme_is_lost(quantity: str) -> None:
    draw = random.Random(0)
    least, pick = quantity == "headroom", min if quantity == "headroom" else max
    count = 3 * MAX_COLUMNS
    rows = [[draw.uniform(1, 2) if draw.random() < 0.9 else -math.inf for _ in range(3)] for _ in range(count)]
    rows[77][1] = math.nan
    looks = []
    for i, row in enumerate(rows):
        there = [(f"{quantity}|m{n}", value) for n, value in enumerate(row) if value != -math.inf]
        looks.append(Measured(7 * i, tuple(name for name, _ in there), [value for _, value in there]))
    levels = measured(*looks)
    assert levels["width"] == 4 and len(numbers(levels["steps"])) == 3 * MAX_COLUMNS // 4
    (kind,) = levels["kinds"]
    order = [int(name[1:]) for name in kind["names"]]
    found = numbers(kind["values"])
    assert kind["least"] == least
    for k in range(3 * MAX_COLUMNS // 4):
        for place, n in enumerate(order):
            part = [row[n] for row in rows[4 * k : 4 * k + 4] if row[n] != -math.inf]
            value = found[k * 3 + place]
            if any(v != v for v in part):
                assert value != value
            else:
                assert value == array("f", [pick(part) if part else -math.inf])[0]


def test_bounds_are_those_of_the_alarms() -> None:
    """Just below its bound there is no alarm, just above there is one."""
    curves = {
        "activation_rms|m": [2.0] * 6 + [29.0] * 20,
        "activation_rms|n": [5.0] * 26,
        "update_ratio|a.weight": [0.01] * 26,
        "headroom|m": [1000.0] * 26,
        "weight_rms|a.weight": [0.05] * 26,
    }
    trace = looked(curves, traced(STEP, parameters=[parameter("a.weight"), parameter("b.weight")]))
    levels = document(trace)["levels"]
    bounds = {
        (quantity, name): bound
        for quantity, kind in kinds_of(levels).items()
        for name, bound in zip(kind["names"], numbers(kind["bound"]), strict=True)
    }
    assert levels["alarms"] == []
    assert bounds["activation_rms", "m"] == 30 and bounds["activation_rms", "n"] == 40  # the level, or 8 times before
    assert bounds["stable_rank", "a.weight"] == -math.inf
    for quantity, name in (("activation_rms", "m"), ("activation_rms", "n"), ("update_ratio", "a.weight")):
        for factor, count in ((0.99, 0), (1.01, 1)):
            curve = curves[f"{quantity}|{name}"][:10] + [factor * bounds[quantity, name]] * 16
            changed = looked({**curves, f"{quantity}|{name}": curve}, traced(STEP))
            found = document(changed)["levels"]["alarms"]
            assert [(one["quantity"], one["name"]) for one in found] == [(quantity, name)] * count


def test_an_alarm_names_its_finding() -> None:
    curves = {"update_ratio|a.weight": [0.01] * 4 + [0.2] * 8}
    for ask, finding in (("levels", 0), ("", -1)):
        trace = looked(curves, traced(STEP, seen=[OPTIMIZER], ask=ask))
        (alarm,) = document(trace)["levels"]["alarms"]
        assert (alarm["name"], alarm["since"], alarm["step"], alarm["finding"]) == ("a.weight", 40, 80, finding)


def test_a_large_model_stays_small() -> None:
    names = tuple(f"{quantity}|layers.{i}.weight" for i in range(2000) for quantity in ("grad_norm", "weight_norm"))
    row = array("f", [1.0] * len(names))
    levels = measured(*(Measured(10 * i, names, row) for i in range(300)))
    held = sum(len(numbers(kind["values"])) for kind in levels["kinds"])
    assert MAX_VALUES / 4 < held <= MAX_VALUES


def test_only_additions_of_a_run_are_sent(tmp_path: Path) -> None:
    names = tuple(f"{quantity}|layers.{i}.weight" for i in range(60) for quantity in ("update_ratio", "stable_rank"))
    draw = random.Random(1)
    writer = Writer(tmp_path / "run", {"script": "train.py", "started": 0.0})

    def train(first: int, end: int, ratio: float) -> None:
        for i in range(first, end):
            writer.step(Step(i, 0.1, 1.0, ()), 0, tuple)
            if i % 10 == 0:
                writer.measured(Measured(i, names, [draw.uniform(0.9, 1) * ratio for _ in names]))
        writer.commit()

    train(0, 401, 0.01)
    source = Source(tmp_path / "run")
    old = source.latest()
    train(401, 461, 0.5)
    data = source.data(old["version"])
    assert data is not None
    news = json.loads(gzip.decompress(data))
    new = source.latest()
    assert new["levels"]["looks"] == old["levels"]["looks"] + 6
    assert [one["kind"] for one in new["levels"]["alarms"]] == ["update-too-large"] and not old["levels"]["alarms"]
    assert merged(sent(old), news["change"]) == sent(new)
    parts = news["change"][1]["levels"][1]["kinds"][1]
    assert [at for at, _ in parts] == [0, 1]
    assert all(made[1]["values"][:2] == ["more", 41 * 60] for _, made in parts)
    assert len(json.dumps(news["change"][1]["levels"])) < len(json.dumps(sent(new)["levels"])) / 4
