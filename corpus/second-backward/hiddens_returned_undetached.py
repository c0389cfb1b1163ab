"""Truncated backpropagation in a trainer loop: the step returns its hidden state as it is, the next chunk continues from it.

Report: https://github.com/Lightning-AI/pytorch-lightning/pull/8145
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "first", "written": "2026-11-22",
}


class LitRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 1)

    def training_step(self, batch, hiddens):
        x, y = batch
        z, hiddens = self.lstm(x, hiddens)  # REUSED
        return {"loss": (self.out(z) - y).square().mean(), "hiddens": hiddens}


class Trainer:
    def __init__(self, steps):
        self.truncate = steps

    def fit(self, model, batches):
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        for x, y in batches:
            hiddens = None
            for a, b in zip(x.split(self.truncate, 1), y.split(self.truncate, 1)):
                out = model.training_step((a, b), hiddens)
                opt.zero_grad()
                out["loss"].backward()
                opt.step()
                hiddens = out["hiddens"]


torch.manual_seed(0)
sizes = [5] * 10 + [15]  # the first recordings fit into one chunk
Trainer(5).fit(LitRNN(), [(torch.randn(4, n, 3), torch.randn(4, n, 1)) for n in sizes])
