"""Lines of nodes whose forward was not recorded, inferred from a layout of a recorded step and from new lines."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import backprobe
from backprobe.observe.backward.layout_matching import from_new_lines, partly_matched
from backprobe.records import Site

CODE = partly_matched.__code__


class Lines:
    """Takes an instruction for ten times its line."""

    def site(self, spot):
        return Site("f.py", spot[1] // 10, "f", "")


def entry(at: int, module: str | None = None):
    return (CODE, at, "op", module, None)


def test_a_line_in_one_module_is_matched_as_a_whole_or_in_part() -> None:
    entries = [entry(10, "0"), entry(12, "1"), entry(14), entry(16), entry(30), entry(14)]
    assert partly_matched(entries, set(range(6)), Lines()) == set()
    assert partly_matched(entries, {0, 1, 2, 4, 5}, Lines()) == {2, 3}  # 3 is of the same line and module as 2
    assert partly_matched(entries, {0, 2, 3, 4}, Lines()) == {1, 5}
    assert partly_matched([], set(), Lines()) == set()


def usual(model: nn.Module, x: torch.Tensor) -> None:
    model(x).square().mean().backward()


def fails(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x).tanh()
    out.sum().backward()
    loss = out.square().sum()  # FAILS
    loss.backward()


def test_a_new_line_goes_before_one_that_made_more_nodes_when_it_ran() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with backprobe.trace(budget=1e-9) as trace:
        for step in range(100):
            optimizer.zero_grad()
            try:
                (fails if step == 99 else usual)(model, torch.randn(3, 4))
            except RuntimeError:
                break
            optimizer.step()
    (found,) = trace.findings
    assert (found.kind, found.confidence, found.step) == ("second-backward", "likely", 99)
    site = found.sites[0].site
    assert site.text == "loss = out.square().sum()  # FAILS"
    others = found.evidence["candidates"]
    assert others[0] == f"{site.file}:{site.line}" and f"{site.file}:{usual.__code__.co_firstlineno + 1}" in others


NEW_LINE = """
h = Doubles.apply(h)
h = helper(h)
"""


def test_a_new_line_that_made_its_own_nodes_made_no_others(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(NEW_LINE)

    class Script:
        def site(self, spot):
            return Site(str(file), spot[1], "f", "")

        def users_files(self):
            return [str(file)]

        def spot_at(self, file, line):
            return CODE, line

    graph = ["MeanBackward0", "GeluBackward0", "DoublesBackward", "AddmmBackward0"]
    names = dict(enumerate(graph))
    found = from_new_lines(names, [(CODE, 2)], Script(), (), graph)
    assert {i: (entry[1], entry[2]) for i, entry in found.items()} == {2: (2, "Function.apply")}
    others = from_new_lines(names, [(CODE, 3)], Script(), (), graph)  # a helper may have made any of them
    assert {entry[1] for i, entry in others.items() if i != 2} == {3} and others.keys() >= {0, 1, 3}
    assert from_new_lines({1: graph[1]}, [(CODE, 2), (CODE, 3)], Script(), (), graph) == {}
