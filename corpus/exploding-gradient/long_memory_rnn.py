"""A plain tanh RNN that must report a value seen at the start of a growing sequence.

Story: the recurrent matrix is drawn wide "to have rich dynamics" as for a reservoir, and the
length of the sequences is raised by a curriculum.  With short sequences all is fine, with long
ones the gradient norm is larger by many powers of ten and the loss jumps about.
Based on the classical reports on exploding gradients of vanilla RNNs (Pascanu et al. 2013 and
PyTorch forum threads on unclipped RNN training); written from general knowledge.
"""
import logging
from dataclasses import dataclass, field

import torch
from torch import nn

EXPECT = {
    "class": "x", "kind": "exploding-gradient", "source_marker": "SRC", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

log = logging.getLogger("memory")


@dataclass
class Curriculum:
    stages: list = field(default_factory=lambda: [(0, 4), (120, 12), (220, 90)])

    def length(self, step):
        return [n for start, n in self.stages if step >= start][-1]


class ReservoirRNN(nn.Module):
    def __init__(self, inputs=2, hidden=64, gain=2.5):
        super().__init__()
        self.inp = nn.Linear(inputs, hidden)
        self.rec = nn.Linear(hidden, hidden, bias=False)
        self.read = nn.Linear(hidden, 1)
        nn.init.normal_(self.rec.weight, std=gain / hidden ** 0.5)

    def forward(self, sequence):
        h = sequence.new_zeros(sequence.shape[0], self.rec.in_features)
        for x in sequence.unbind(1):
            h = torch.tanh(self.rec(h) + self.inp(x))  # SRC
        return self.read(h).squeeze(-1)


def recall_batch(length, size, generator):
    """First channel holds a value at time 0 and noise later, the second marks the value."""
    signal = 0.3 * torch.randn(size, length, generator=generator)
    signal[:, 0] = torch.randn(size, generator=generator)
    cue = torch.zeros(size, length)
    cue[:, 0] = 1.0
    return torch.stack([signal, cue], dim=-1), signal[:, 0].clone()


def grad_norm(module):
    return torch.stack([p.grad.norm() for p in module.parameters()]).norm().item()


def train(model, steps=360, batch=32, lr=5e-4):
    curriculum = Curriculum()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=lr)
    g = torch.Generator().manual_seed(7)
    for step in range(steps):
        length = curriculum.length(step)
        x, y = recall_batch(length, batch, g)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if step % 20 == 0:
            log.info("step %d length %d loss %.3f grad %.2e", step, length, loss.item(), grad_norm(model))
        optimizer.step()


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    train(ReservoirRNN())


if __name__ == "__main__":
    main()
