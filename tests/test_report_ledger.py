"""The ledger in the page's document: accounts, rows and events that are shared, and the bounds of both."""

from __future__ import annotations

import base64
import gzip
import json
from array import array
from typing import Any

import pytest
import torch
from handmade import at as site_at
from handmade import parameter, traced
from learning import OPTIMIZER, STEP
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, event, gave, optimizer, row
from torch import nn

import backprobe
from backprobe import Trace
from backprobe.records import (
    BufferWrite,
    LedgerBuffer,
    LedgerChanges,
    LedgerOptimizer,
    LedgerRow,
    LedgerStay,
    WeightChange,
)
from backprobe.records import ledger as events
from backprobe.report import ledger as limits
from backprobe.report.columns import CODES
from backprobe.report.document import document
from backprobe.traces.ledger import event_line

NAMES = ("a.weight", "a.bias", "b.weight")


def recorded(*rows: LedgerRow, optimizers: tuple[LedgerOptimizer, ...] = (optimizer(),)) -> Trace:
    return traced(STEP, seen=[OPTIMIZER, *optimizers, *rows], parameters=[parameter(name) for name in NAMES])


def accounts(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By parameter, its account."""
    column = made["ledger"]["of"]
    of = array(CODES[column["t"]], base64.b64decode(column["b"]))
    names = [one["name"] for one in made["parameters"]]
    return {name: made["ledger"]["accounts"][at] for name, at in zip(names, of, strict=True) if at >= 0}


def told(made: dict[str, Any], number: int) -> list[tuple[str, str, int]]:
    """The events of a row: sign, text, line."""
    found = []
    for at in made["ledger"]["rows"][number]["events"]:
        one = made["ledger"]["events"][at]
        found.append((one["sign"], one["text"], made["sites"][one["site"]]["line"] if one["site"] >= 0 else -1))
    return found


def test_a_run_without_records_of_the_ledger_has_none() -> None:
    assert document(recorded())["ledger"] is None
    assert document(recorded(optimizers=()))["ledger"] is None
    assert document(Trace())["ledger"] is None


def test_events_are_in_order_with_their_lines_and_signs() -> None:
    others = event(events.OTHER_STEP, 44, 1)
    changed = event(events.SCALED, times=2)
    rows = row(others, CLEARED, gave(32), changed, event(events.WRITTEN, 36), USED, moved=3, kept=2)
    made = document(recorded(rows, optimizers=(optimizer(), optimizer(1, "Adam", omitted=7))))
    assert told(made, 0) == [
        ("other", "step of another optimizer (Adam)", 44),
        ("clear", "cleared", 31),
        ("gradient", "gradient", 32),
        ("write", "changed in place, 2 times", -1),
        ("weight", "weight changed outside of steps", 36),
        ("step", "SGD stepped with the gradient", STEPPED_LINE),
    ]
    (found,) = made["ledger"]["rows"]
    assert {key: found[key] for key in ("periods", "first", "last", "moved", "kept", "frozen", "optimizer")} == {
        **{"periods": 5, "first": 1, "last": 9, "moved": 3, "kept": 2, "frozen": False, "optimizer": 0}
    }
    (held,) = made["ledger"]["optimizers"]  # the other one holds no parameter with a row
    assert (held["name"], made["sites"][held["made"]]["line"], held["omitted"]) == ("SGD", MADE_LINE, 0)


def test_a_row_says_why_the_weight_stayed() -> None:
    stays = (LedgerStay(events.NO_RATE, 2), LedgerStay(events.NOT_KNOWN, 1))
    made = document(recorded(row(USED, moved=3, kept=1, stayed=stays), row(CLEARED, USED)))
    found = [(one["kept"], one["why"]) for one in made["ledger"]["rows"]]
    assert found == [(3, "it stayed because the learning rate was 0 (2 times)"), (0, "")]


def test_changes_and_buffers_are_in_the_document() -> None:
    change = WeightChange(3, 2.0, 0.1, 0.08, 0.05, 0.0, 0.75, 0.25, 0.0, 1e-9)
    writes = (BufferWrite("load_state_dict", site_at(40), 1),)
    seen = [
        *(optimizer(), row(USED), LedgerChanges("a.weight", 0, (change,)), LedgerChanges("elsewhere", 0, (change,))),
        LedgerBuffer(("a.mean", "a.var"), "BatchNorm1d", 9, 4, 2, 8, 3, site_at(32), writes, 0, "NaN", 5),
    ]
    made = document(traced(STEP, seen=[OPTIMIZER, *seen], parameters=[parameter(name) for name in NAMES]))
    (changed,) = made["ledger"]["changes"]
    assert (
        changed["split"] and changed["optimizer"] == 0 and made["parameters"][changed["parameter"]]["name"] == NAMES[0]
    )
    assert changed["rows"] == [["3", "0.1 (5%)", "0.08 (75%)", "0.05 (25%)", "0", ""]]
    (buffer,) = made["ledger"]["buffers"]
    assert (buffer["module"], buffer["title"].startswith("a.mean, a.var, buffers of BatchNorm1d")) == ("a", True)
    lines = [made["sites"][row[3]]["line"] if row[3] >= 0 else -1 for row in buffer["rows"]]
    assert [row[:3] for row in buffer["rows"]] == [
        ["2 to 8", "3", "forward in training mode"],
        ["", "1", "written by load_state_dict"],
        ["5 on", "", "NaN"],
    ]
    assert lines == [32, 40, -1]


def test_every_event_has_a_sign() -> None:
    made = document(recorded(row(*(event(what) for what in events.EVENTS))))
    steps = {events.USED, events.USED_ZERO, events.USED_AGAIN, events.SKIPPED}
    signs = [sign for sign, _, _ in told(made, 0)]
    assert [sign == "step" for sign in signs] == [what in steps for what in events.EVENTS]
    assert set(limits.SIGNS) == set(events.EVENTS) - steps


def test_parameters_with_the_same_account_share_it_and_rows_share_events() -> None:
    plain = row(CLEARED, gave(32), USED, names=("a.weight", "a.bias"))
    late = row(CLEARED, USED, names=("a.weight", "a.bias", "b.weight"), periods=1, first=10, last=10)
    made = document(recorded(late, plain))
    found = accounts(made)
    assert found["a.weight"] is found["a.bias"] and found["a.weight"] == {"rows": [0, 1], "cut": 0}
    assert found["b.weight"] == {"rows": [1], "cut": 0}
    assert [one["first"] for one in made["ledger"]["rows"]] == [1, 10]
    assert len(made["ledger"]["accounts"]) == 2 and len(made["ledger"]["events"]) == 3


def test_rows_of_two_optimizers_of_one_parameter_come_one_optimizer_after_the_other() -> None:
    rows = row(gave(34), USED, optimizer=1, first=0), row(gave(32), USED, first=1)
    made = document(recorded(*rows, optimizers=(optimizer(), optimizer(1, "Adam"))))
    assert [one["name"] for one in made["ledger"]["optimizers"]] == ["SGD", "Adam"]
    assert accounts(made)["a.weight"]["rows"] == [0, 1]
    assert [told(made, at)[0][2] for at in (0, 1)] == [32, 34]


def test_names_that_the_run_has_no_parameter_for_are_left_out() -> None:
    made = document(recorded(row(USED, names=("a.weight", "elsewhere"))))
    assert list(accounts(made)) == ["a.weight"]
    assert document(recorded(row(USED, names=("elsewhere",))))["ledger"] is None


def test_rare_rows_are_left_out_of_a_long_account_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROWS_EACH", 3)
    rows = [row(gave(32, times=n + 1), USED, periods=n + 1, first=n, last=n + 20) for n in range(5)]
    made = document(recorded(*rows))
    assert accounts(made)["a.weight"] == {"rows": [0, 1, 2], "cut": 2}
    assert [one["periods"] for one in made["ledger"]["rows"]] == [3, 4, 5]


def test_parameters_of_findings_keep_their_rows_in_a_page_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROWS", 1)
    stale = row(gave(32, added=True), USED, names=("b.weight",), periods=8, first=1, last=8)
    fine = [row(CLEARED, gave(32), USED, names=(name,), periods=9) for name in ("a.weight", "a.bias")]
    trace = recorded(*fine, stale)
    (finding,) = (one for one in trace.findings if one.kind == "gradient-not-cleared")
    assert finding.parameters == ("b.weight",)
    found = accounts(document(trace))
    assert found["b.weight"] == {"rows": [0], "cut": 0}
    assert found["a.weight"] == {"rows": [], "cut": 1}


def test_the_document_stays_small() -> None:
    names = [f"layers.{n}.weight" for n in range(2000)]
    rows = [
        row(
            *(gave(32, times=k) for k in range(1, 60)),
            USED,
            names=tuple(names[n % 160 :: 160]),
            periods=n % 50 + 1,
            first=n,
        )
        for n in range(4000)
    ]
    trace = traced(STEP, seen=[OPTIMIZER, optimizer(), *rows], parameters=[parameter(name) for name in names])
    made = document(trace)["ledger"]
    assert len(made["rows"]) <= limits.MAX_ROWS and len(made["events"]) == 60
    assert all(len(one["rows"]) <= limits.MAX_ROWS_EACH for one in made["accounts"])
    assert len(gzip.compress(json.dumps(made).encode())) < 100_000


def test_a_real_run_has_the_accounts_of_its_records() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model) as trace:
        for _ in range(6):
            model(torch.randn(8, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(model[0].parameters(), 1e-3)
            sgd.step()
            sgd.zero_grad()
    made = document(trace)
    held = {one.number: one for one in trace.facts.of(LedgerOptimizer)}
    records = list(trace.facts.of(LedgerRow))
    found = accounts(made)
    assert set(found) == {name for one in records for name in one.parameters} == {p.name for p in trace.parameters}
    for name, account in found.items():
        mine = [one for one in records if name in one.parameters]
        shown = sorted(text for at in account["rows"] for _, text, _ in told(made, at))
        assert shown == sorted(event_line(one, each, held)[0] for one in mine for each in one.events)
    assert found["0.weight"] != found["2.weight"] and found["0.weight"] is found["0.bias"]
