"""After 60 steps a dense model of speech frames is replaced by a mixture of experts, all of which are one and the same."""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "module-repeated", "framework": "plain", "kind": "module-repeated", "line": ("cause", "REPEATS"),
    "set": "ledger", "written": "2026-11-27",
}


def feed_forward(width):
    return nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width))


class Dense(nn.Module):
    def __init__(self, width=12, classes=6):
        super().__init__()
        self.mix, self.out = feed_forward(width), nn.Linear(width, classes)

    def forward(self, frames):
        return self.out(frames + self.mix(frames))


class Mixture(nn.Module):
    def __init__(self, width=12, classes=6, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        pool = (feed_forward(width),) * experts  # REPEATS
        self.experts = nn.ModuleList(pool)
        self.out = nn.Linear(width, classes)

    def forward(self, frames):
        weights = self.gate(frames).softmax(-1)
        mixed = torch.stack([expert(frames) for expert in self.experts], dim=-1)
        return self.out(frames + (mixed * weights[:, None]).sum(-1))


def train(model, frames, phones, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        picked = torch.randint(0, len(frames), (64,))
        loss = F.cross_entropy(model(frames[picked]), phones[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(type(model).__name__, loss.item())


def main():
    torch.manual_seed(11)
    frames = torch.randn(2000, 12)
    phones = (frames[:, :6] * frames[:, 6:].sign()).argmax(1)
    train(Dense(), frames, phones, 60)
    train(Mixture(), frames, phones, 120)


if __name__ == "__main__":
    main()
