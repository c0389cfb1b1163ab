"""Language model with truncated backpropagation: hidden states are detached where they are tensors or tuples, the search phase hands them over as a list.

Report: https://github.com/quark0/darts/issues/56 (backward only runs with retain_graph=True, because of repackage_hidden)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 121,
    "set": "fourth", "written": "2026-11-22",
}


class Cell(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.x, self.h = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)

    def forward(self, inputs, hidden):
        out = []
        for x in inputs:
            hidden = torch.tanh(self.x(x) + self.h(hidden))  # REUSED
            out.append(hidden)
        return torch.stack(out), hidden


class Model(nn.Module):
    def __init__(self, words=20, dim=12):
        super().__init__()
        self.embed, self.cells, self.out = nn.Embedding(words, dim), nn.ModuleList([Cell(), Cell()]), nn.Linear(dim, words)
        self.searching = False

    def forward(self, tokens, hidden):
        x, new = self.embed(tokens), []
        for cell, h in zip(self.cells, hidden):
            x, h = cell(x, h)
            new.append(h)
        return self.out(x), new if self.searching else tuple(new)


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    if isinstance(h, tuple):
        return tuple(repackage_hidden(v) for v in h)
    return h


torch.manual_seed(0)
model = Model()
opt = torch.optim.SGD(model.parameters(), 0.5)
stream = torch.randint(0, 20, (4,)) + torch.arange(2000)[:, None]
hidden = tuple(torch.zeros(4, 12) for _ in range(2))
for step in range(200):
    model.searching = step >= 120
    tokens = stream[6 * step : 6 * step + 7] % 20
    hidden = repackage_hidden(hidden)
    logits, hidden = model(tokens[:-1], hidden)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    opt.step()
    if step % 20 == 0:
        print(step, round(loss.item(), 4))
