"""Parts of a model without gradient mode: in a reentrant checkpoint, in the training forward, in evaluations."""

from __future__ import annotations

import textwrap

import pytest
from forked import found_in

SETUP = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, ids):
        return self.head(self.encode(self.words(ids))[:, 0])

@torch.no_grad()
def evaluate(model):
    model.eval()
    model(torch.randint(20, (4, 5)))
    model.train()

def train(model):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for step in range(24):
        loss = nn.functional.cross_entropy(model(torch.randint(20, (4, 5))), torch.randint(2, (4,)))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step % 8 == 7:
            evaluate(model)
"""
CHECKPOINTED = """
class Checkpointed(Net):
    def encode(self, x):
        return checkpoint(self.layer, x, use_reentrant=True) if self.training else self.layer(x)

net = Checkpointed()
"""
#: Name -> a script after ``SETUP``, and a part of the main line of its only finding; empty if there is none.
CASES = {
    "a layer in a reentrant checkpoint above a frozen embedding": (
        CHECKPOINTED + "net.words.requires_grad_(False)\ntrain(net)\n",
        "return checkpoint(self.layer, x, use_reentrant=True)",
    ),
    "a layer in a reentrant checkpoint above a trained embedding": (CHECKPOINTED + "train(net)\n", ""),
    "a frozen layer in a reentrant checkpoint": (
        CHECKPOINTED + "net.words.requires_grad_(False)\nnet.layer.requires_grad_(False)\ntrain(net)\n",
        "",
    ),
    "a layer that the training forward runs without gradients": (
        """
        class Quiet(Net):
            def encode(self, x):
                with torch.no_grad():
                    x = self.layer(x)
                return x + self.words.weight.mean()

        train(Quiet())
        """,
        "with torch.no_grad():",
    ),
    "an encoder that the script calls without gradients": (
        """
        class Encoded(Net):
            def forward(self, x):
                return self.head(x[:, 0])

        def evaluate(model):
            with torch.inference_mode():
                model(model.layer(model.words(torch.randint(20, (4, 5)))))

        model = Encoded()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(24):
            words = model.words(torch.randint(20, (4, 5)))
            with torch.no_grad():  # the encoder
                x = model.layer(words)
            loss = nn.functional.cross_entropy(model(x + words), torch.randint(2, (4,)))
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            evaluate(model)
        """,
        "with torch.no_grad():  # the encoder",
    ),
    "a layer that only evaluations run": (
        """
        class Evaluated(Net):
            def encode(self, x):
                return x if self.training else self.layer(x)

        train(Evaluated())
        """,
        "return x if self.training else self.layer(x)",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> exit code, findings, and the report."""
    folder, scripts = tmp_path_factory.mktemp("without_gradient_mode"), {}
    for name, (script, _) in CASES.items():
        path = folder / f"{name.replace(' ', '_')}.py"
        path.write_text(SETUP + textwrap.dedent(script))
        scripts[name] = str(path), ["--every", "1"]
    return found_in(folder, scripts)


@pytest.mark.parametrize("name", CASES)
def test_the_line_that_took_the_gradient_mode(name: str, runs) -> None:
    _, line = CASES[name]
    _, found, report = runs(name)
    assert "internal error" not in report
    assert [one["kind"] for one in found] == ([] if line == "" else ["none-grad"]), report
    if line:
        assert line in found[0]["sites"][0]["text"], report
        assert {one for one in found[0]["parameters"] if one.startswith("layer.")} == set(found[0]["parameters"])
        assert len(found[0]["parameters"]) >= 8 if "checkpoint" in name else 6
