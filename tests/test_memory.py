"""``--check memory``: memory that a graph keeps, other holders of it, and the saving of checkpointing."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripts import line_of, run
from torch import nn
from torch.nn import functional as F
from watching import watched

import backprobe as bp
from backprobe import Trace
from backprobe.observe.session import Settings
from backprobe.records import Facts, SavedBytes, SavedEntry, SavedMemory, SavedModule, SavedMoment, SavedUnknown, Site
from backprobe.saved_memory.reading import Reading
from backprobe.store.codec import Decoder
from backprobe.store.facts import facts_from, facts_plain

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from models import GPT

torch.set_num_threads(1)


class Mixed(nn.Module):
    """A block that is called twice, a residual, a slice of a block's output, a pool that saves indices."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.drop, self.pool = nn.Dropout(0.3), nn.MaxPool2d(2)
        self.block = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
        self.last = nn.Sequential(nn.Linear(8, 64), nn.ReLU())
        self.lstm, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        h = self.pool(self.drop(F.relu(self.norm(self.conv(x)))))
        h = h.flatten(2).transpose(1, 2)
        h = self.block(h) + h
        h = self.block(h) + h
        h = self.last(h).chunk(8, -1)[2] + h
        return self.head(self.lstm(h)[0][:, -1].contiguous())


def gpt():
    model, x = GPT(layers=2, width=48, context=16), torch.randint(0, 96, (2, 17))
    return model, lambda: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def mixed():
    model, x, y = Mixed(), torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    return model, lambda: F.cross_entropy(model(x), y)


@pytest.mark.parametrize("make", [gpt, mixed])
def test_the_predicted_saving_of_a_checkpoint_is_exact(make):
    """The oracle: the step is run with the module checkpointed, and what ops have allocated is counted."""
    torch.manual_seed(0)
    model, step = make()
    with bp.saved_tensors(model) as ledger:
        loss = step()
    wrong = {}
    for module in ledger.modules:
        trial = ledger.try_checkpoint(module.path, step, rounds=1)
        measured = trial.plain.kept_bytes - trial.tried.kept_bytes
        if module.saves != measured:
            wrong[module.path] = (module.saves, measured)
    # The positions that go into the embedding have no gradient, so the graph does not show them as an input.
    assert wrong == ({"position": (128, 0)} if make is gpt else {})
    assert len(ledger.modules) > 10
    assert bp.saved_tensors(loss).modules == []


GPT_SCRIPT = """
import sys
sys.path.insert(0, {bench!r})
from models import GPT
def main():
    model, x = GPT(layers=2, width=48, context=16), torch.randint(0, 96, (2, 17))
    for _ in range(2):
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())  # LOSS
        loss.backward()
        model.zero_grad()
main()
"""


def test_the_finding_matches_the_ledger(tmp_path):
    """A watched script and ``saved_tensors`` report the same for the same model, because both use one reader."""
    script = GPT_SCRIPT.replace("{bench!r}", repr(str(Path(__file__).parents[1] / "bench")))
    text, (finding,), _ = run(tmp_path, script, "memory")
    torch.manual_seed(0)
    model, step = gpt()
    with bp.saved_tensors(model) as ledger:
        loss = step()
    del loss
    evidence = finding.evidence
    assert evidence["total_bytes"] == ledger.bytes
    assert evidence["held_anyway"]["parameter"] == ledger.held_bytes("parameter")
    assert evidence["nodes"] == ledger.nodes and evidence["unknown"] == []
    assert evidence["graphs_looked_at"] == 2
    for what in ("module", "op", "dtype"):
        table = evidence[f"by_{what}"]
        assert sum(table.values()) == ledger.bytes
        assert table == {row.key: row.nbytes for row in ledger.by(what)}
    line = f"{tmp_path / 'train.py'}:{line_of(text, '# LOSS')}"
    assert sum(evidence["by_line"].values()) == ledger.bytes and evidence["by_line"][line] > 0
    best = evidence["checkpoint"][0]
    assert (best["class"], best["modules"]) == ("Block", ["blocks.0", "blocks.1"])
    saves = sum(m.saves for m in ledger.modules if m.path in best["modules"])
    assert best["saves_bytes"] == saves == best["inside_bytes"] - best["input_bytes"]
    assert "each of the 2 Block (blocks.0, ...)" in finding.advice
    assert "computed from the graph" in finding.advice and "try_checkpoint" in finding.advice


def test_sizes_worked_out_by_hand(tmp_path):
    """Each storage counts once, and memory that a variable holds anyway is separate."""
    text, (finding,), _ = run(
        tmp_path,
        """
        a = torch.ones(100, 10, requires_grad=True)
        b = torch.exp(a)
        c = b.t().sin()  # the transposed view is b again: nothing new
        d = c.exp().square().sum() * torch.ones(5)  # HERE
        d.sum().backward()
        """,
        "memory",
    )
    assert [r["bytes"] for r in finding.evidence["rows"]] == [4000, 20]
    assert finding.evidence["total_bytes"] == 4020
    assert finding.evidence["held_anyway"] == {"variable": 4000}
    assert [s.site.line for s in finding.sites] == [line_of(text, "# HERE")]
    assert "3.91 KiB by your variables" in finding.title


def test_nothing_is_read_without_a_request(tmp_path, monkeypatch):
    monkeypatch.setattr("backprobe.saved_memory.reading.read", lambda *a: pytest.fail("read"))
    _, found, _ = run(tmp_path, "nn.Linear(2, 1)(torch.ones(1, 2)).exp().sum().backward()")
    assert found == []


def test_unmeasurable_tensors_are_counted(tmp_path):
    _, (finding,), _ = run(
        tmp_path,
        """
        class Odd:
            __slots__ = ("t",)
            def __init__(self, t): self.t = t
        net = nn.Linear(3, 3)
        x = torch.randn(2, 3)
        y = net(x).exp()
        with torch.autograd.graph.saved_tensors_hooks(Odd, lambda o: o.t):
            z = y.sin()
        (z * 2).cos().sum().backward()
        """,
        "memory",
    )
    assert finding.evidence["unknown"] == [
        {"what": "tensors packed by saved-tensor hooks", "count": 1, "why": "what they became is a Odd"}
    ]
    assert "1 saved tensors could not be measured" in finding.advice


def facts_of(script, tmp_path):
    path = tmp_path / "s.py"
    path.write_text(script)
    session, _ = watched(Settings(checks=frozenset({"memory"})))
    session.start()
    try:
        exec(compile(script, str(path), "exec"), {"__name__": "__main__"})
    finally:
        session.stop()
    return session.facts()


def test_facts_come_back_from_the_store(tmp_path):
    import json

    facts = facts_of(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))\n"
        "net(torch.ones(3, 4)).exp().sum().backward()\n",
        tmp_path,
    )
    rows, fields = json.loads(json.dumps(facts_plain(facts)))
    again = facts_from(rows, facts.asked, Decoder(fields))
    assert again.one(SavedMemory) == facts.one(SavedMemory) and again.of(SavedBytes) == facts.of(SavedBytes)
    memory = again.one(SavedMemory)
    assert isinstance(memory, SavedMemory) and memory.entries and isinstance(memory.entries[0].shape, tuple)
    own = sum(r.bytes for r in again.of(SavedBytes) if not r.holder)
    assert memory.curve[0].nbytes == own > 0 and memory.curve[-1].nbytes == 0
    orders = [m.order for m in memory.curve]
    assert orders == sorted(set(orders))


def entry(i, nbytes, holder=""):
    site = Site("a.py", i, "f")
    return SavedEntry(nbytes, "MulBackward0", "self", (nbytes,), "uint8", "mul", f"m.{i}", site, 1, 0, holder)


def test_the_record_of_a_large_graph_is_bounded():
    """The rows add up whatever the bound; the points of the curve that are left are exact."""
    entries = [entry(i, 5000 - i, "parameter" if i % 3 == 0 else "") for i in range(4000)]
    own = sum(e.nbytes for e in entries if not e.holder)
    left, curve = own, []
    for order, e in enumerate(e for e in entries if not e.holder):
        left -= e.nbytes
        curve.append(SavedMoment("MulBackward0", e.module, left, order))
    reading = Reading(entries, [], [], curve, 4000)
    rows = reading.rows(100)
    assert len(rows) == 102
    assert sum(r.bytes for r in rows if not r.holder) == own
    assert sum(r.bytes for r in rows if r.holder) == sum(e.nbytes for e in entries if e.holder)
    points = reading.steps(50)
    assert len(points) == 51 and points[0].nbytes == own
    assert set(points[1:]) <= set(curve)
    # The largest drops are the first ones here.
    assert points[1:] == tuple(curve[:50])
    record = reading.record(0, 0, 1)
    assert len(record.entries) == 200 and len(record.curve) == 1001


def memory_of(*modules, unknown=(), start=1000):
    return SavedMemory(0, 0, 1, 10, 1, (), (SavedMoment("", None, start, -1),), (), unknown, modules)


def finding_of(memory, entries=None):
    rows = Reading(entries or [entry(1, 1000)], [], [], [], 1).rows()
    (finding,) = Trace([], Facts(asked=("memory",), seen=(*rows, memory))).findings
    return finding


def test_advice_by_hand_written_records():
    whole = SavedModule("net", "Net", 1, 990, 10)
    a, b = SavedModule("net.a", "Block", 1, 300, 20), SavedModule("net.b", "Block", 1, 300, 20)
    other = SavedModule("net.c", "Wide", 1, 400, 10)
    useless = SavedModule("net.d", "Linear", 1, 50, 50)
    finding = finding_of(memory_of(whole, other, a, b, useless))
    assert "Checkpointing each of the 2 Block (net.a, ...) would save about 560 B of 1000 B" in finding.advice
    assert [c["class"] for c in finding.evidence["checkpoint"]] == ["Block", "Wide"]
    assert finding.evidence["checkpoint"][0]["how"] == "computed from the graph, not run"
    alone = finding_of(memory_of(other))
    assert "Checkpointing net.c would save about 390 B" in alone.advice
    none = finding_of(memory_of(useless, unknown=(SavedUnknown("CppFunction", 3, "does not say"),)))
    assert none.advice.startswith("Checkpoint what keeps most")
    assert "3 saved tensors could not be measured" in none.advice
    held = finding_of(memory_of(), [replace(entry(1, 64), holder="variable")])
    assert held.title == "what is kept for backward is held anyway: 64 B by your variables"
