"""Findings of scripts with one mistake each."""

from __future__ import annotations

import pytest
import torch
from corpora import load_snippets
from scripts import findings, line_of

import backprobe

SNIPPETS = load_snippets()


@pytest.mark.parametrize("name", SNIPPETS)
def test_one_mistake_one_finding_at_its_line(name: str, tmp_path) -> None:
    script, kind, part, module = SNIPPETS[name]
    text, found = findings(tmp_path, script)
    assert [f.kind for f in found] == [kind], [str(f) for f in found]
    if part is not None:
        assert found[0].sites[0].site.line == line_of(text, part)
    if module is not None:
        assert found[0].module == module
    assert found[0].advice
    assert found[0].title


def test_two_models_are_distinguished(tmp_path) -> None:
    _, found = findings(
        tmp_path,
        """
        G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
        opt = torch.optim.SGD([*G.parameters(), *D.parameters()], lr=0.1)
        for _ in range(4):
            D(torch.randn(4, 3)).sum().backward()
            opt.step()
            opt.zero_grad()
            D(torch.round(G(torch.randn(4, 2)))).sum().backward()  # HERE
            opt.step()
        """,
    )
    assert [f.kind for f in found] == ["zero-grad"]
    assert found[0].parameters == ("G.weight", "G.bias")


def test_values_that_become_bad_say_which_and_where(tmp_path) -> None:
    _, (finding,) = findings(
        tmp_path,
        """
        x = torch.ones(2, 3)
        x[1, 2] = float("inf")
        net = nn.Linear(3, 1)
        net(x).sum().backward()
        """,
    )
    assert finding.kind == "nonfinite-forward"
    assert finding.tensor == "x"
    assert "came from outside the graph" in finding.title


def test_zero_times_infinity_is_distinguished(tmp_path) -> None:
    _, (finding,) = findings(
        tmp_path,
        """
        z = torch.tensor([1.0, 200.0], requires_grad=True)
        torch.where(z > 100, z, torch.exp(z)).sum().backward()
        """,
    )
    assert "0 times Inf is NaN" in finding.title
    assert "torch.where" in finding.advice
    assert finding.evidence["incoming_zeros"]


def test_a_run_that_is_bad_throughout_is_one_finding() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with backprobe.trace(model) as trace:
        for _ in range(20):
            optimizer.zero_grad()
            (model(torch.randn(2, 3)) / 0).sum().backward()
            optimizer.step()
    assert [f.kind for f in trace.findings] == ["nonfinite-forward"]
