"""Bird calls are recognised with a batch norm written by hand, because recordings differ in length: its running mean is renewed from the batch's mean as it is, and so the graphs of all batches hang on the buffer.

Report: https://github.com/pytorch/pytorch/issues/20275 (memory leak with custom batch norm layer: "that running_mean update is exactly your problem. You keep extending the graph")
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "leak", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "eleventh", "written": "2026-11-23",
}


class MaskedNorm(nn.Module):
    """Batch norm over the frames that are really there."""

    def __init__(self, channels, momentum=0.1, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps = momentum, eps

    def forward(self, x, there):
        if self.training:
            count = there.sum()
            mean = (x * there).sum((0, 2)) / count
            var = ((x - mean[:, None]).pow(2) * there).sum((0, 2)) / count
            self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean  # HOLDS
            with torch.no_grad():
                self.running_var.lerp_(var, self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean[:, None]) * torch.rsqrt(var + self.eps)[:, None]
        return x * self.weight[:, None] + self.bias[:, None]


class CallNet(nn.Module):
    def __init__(self, bands=20, width=32, species=6):
        super().__init__()
        self.first, self.second = nn.Conv1d(bands, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2)
        self.norm = MaskedNorm(width)
        self.out = nn.Linear(width, species)

    def forward(self, x, there):
        x = F.relu(self.norm(self.first(x), there))
        x = F.relu(self.second(x)) * there
        return self.out(x.sum(2) / there.sum(2))


def recordings(voices, count=24, longest=80):
    species = torch.randint(0, len(voices), (count,))
    length = torch.randint(30, longest + 1, (count, 1, 1))
    there = (torch.arange(longest) < length).float()
    t = torch.arange(longest) / 8
    song = torch.sin(voices[species][..., None] * t + torch.rand(count, 1, 1))
    return (song + 0.3 * torch.randn(count, 20, longest)) * there, there, species


torch.manual_seed(0)
model, voices = CallNet(), torch.rand(6, 20) * 4
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(80):
    x, there, species = recordings(voices)
    loss = F.cross_entropy(model(x, there), species)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
