"""A model and its port: other names of modules, other weights, another number of ops, and one that is wrong."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import backprobe
from backprobe.commands import main
from backprobe.commands.compare import judge_of
from backprobe.comparing.align import Names
from backprobe.comparing.compared import Compared, compare
from backprobe.comparing.files import read_tape, tape_folder

DIM, HEADS = 16, 2


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(DIM // HEADS), -1)
        return torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous().view(x.shape)


class Output(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(size, DIM), nn.LayerNorm(DIM, eps=1e-12)

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dense(x) + given)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(), "output": Output(DIM)})
        self.intermediate, self.output = nn.ModuleDict({"dense": nn.Linear(DIM, 4 * DIM)}), Output(4 * DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention["output"](self.attention["self"](x), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(20, DIM)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(2))})
        self.classifier = nn.Linear(DIM, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embeddings(ids)
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.classifier(x[:, 0])


class Block(nn.Module):
    """`Layer` written by hand: its modules in another order, and torch's own attention."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.ln2 = nn.LayerNorm(DIM, eps=1e-12 if bad != "eps" else 1e-5)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.v, self.k, self.q, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.ln1 = nn.LayerNorm(DIM, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        v, k, q = (one(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in (self.v, self.k, self.q))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        x = self.ln1(x + self.o(y))
        h = F.gelu(self.up(x), approximate="tanh" if self.bad == "gelu" else "none")
        return self.ln2(x + self.down(h))


class Port(nn.Module):
    def __init__(self, bad: str) -> None:
        super().__init__()
        self.head = nn.Linear(DIM, 3)
        self.h = nn.ModuleList([Block(""), Block(bad)])
        self.wte = nn.Embedding(20, DIM)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        return self.head(x[:, 0])


TABLE = [
    (r"^encoder\.layer\.(\d+)", r"h.\1"),
    (r"\.attention\.self\.(.)\w+", r".\1"),
    (r"\.attention\.output\.dense", ".o"),
    (r"\.attention\.output\.LayerNorm", ".ln1"),
    (r"\.intermediate\.dense", ".up"),
    (r"\.output\.dense", ".down"),
    (r"\.output\.LayerNorm", ".ln2"),
    (r"\.(attention\.)?output$", ""),
    (r"\.attention\.self$", ""),
    ("^embeddings", "wte"),
    ("^classifier", "head"),
]


def ported(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    of = Names(TABLE).of
    return {of(name): value for name, value in weights.items()}


def train(model: nn.Module) -> None:
    draw = torch.Generator().manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        ids, labels = (torch.randint(0, most, size, generator=draw) for most, size in ((20, (4, 6)), (3, (4,))))
        optimizer.zero_grad()
        F.cross_entropy(model(ids), labels).backward()
        optimizer.step()


def recorded(folder: Path, bad: str = "", dtype: torch.dtype = torch.float32) -> list[Path]:
    """Each model is made and given the same weights in the run, as scripts have it."""
    torch.manual_seed(0)
    weights = Bert().state_dict()
    assert set(ported(weights)) == set(Port("").state_dict())
    places = [folder / "A", folder / "B"]
    for place, make, given in zip(places, (Bert, lambda: Port(bad)), (weights, ported(weights)), strict=True):
        with backprobe.trace(record_ops=place):
            model = make().to(torch.float32 if make is Bert else dtype)
            model.load_state_dict(given)
            train(model)
    return places


def judged(places: list[Path]) -> Compared:
    return compare(*map(read_tape, places), judge_of(*map(tape_folder, places)), Names(TABLE))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_port_that_is_right_is_the_same_but_for_rounding(tmp_path, dtype) -> None:
    found = judged(recorded(tmp_path, dtype=dtype))
    assert found.verdict == "rounding" and found.different, found.blame
    assert found.ends > 2 * len(TABLE) and found.alone[0] and found.alone[1]
    assert not any("weights at the start" in line for line in found.before), found.before


@pytest.mark.parametrize(
    ("bad", "kind", "op", "module"),
    [
        ("eps", "arguments", "native_layer_norm", "h.1.ln2"),
        ("gelu", "arguments", "gelu", "h.1"),
    ],
)
def test_the_op_of_a_port_that_is_wrong_is_named(tmp_path, bad, kind, op, module) -> None:
    found = judged(recorded(tmp_path, bad))
    assert found.blame is not None and found.blame.b is not None
    assert (found.blame.kind, found.blame.b.name, found.blame.b.module) == (kind, op, module)
    assert found.blame.a is not None and found.blame.a.module.startswith("encoder.layer.1")


def test_the_table_is_given_by_map(tmp_path, capsys) -> None:
    places = recorded(tmp_path, "eps")
    table = [word for old, new in TABLE for word in ("--map", f"{old}={new}")]
    assert main(["compare", *table, *map(str, places)]) == 1
    told = capsys.readouterr().out
    assert re.search(r"A: native_layer_norm in encoder\.layer\.1\.output\.LayerNorm at test_compare_port", told)
    assert re.search(r"B: native_layer_norm in h\.1\.ln2 at test_compare_port", told)
