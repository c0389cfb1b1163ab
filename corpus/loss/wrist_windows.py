"""Self-supervised pretraining of an encoder for wrist-sensor windows (SimSiam style), then a look at the embeddings.

Report: https://github.com/PatrickHua/SimSiam/issues/39
"""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "embeddings-collapse",
    "line": ("cause", "HERE"),
    "plain": "the loss races to -1.0 within a few epochs, the spread of the embeddings falls, different windows have nearly the same embedding and nearest neighbours tell the activity poorly",
    "set": "twentysixth",
    "written": "2026-11-29",
}

CLASSES, CHANNELS, LENGTH = 6, 3, 64
EPOCHS, BATCH = 8, 128


def make_windows(count, generator):
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    time = torch.linspace(0, 1, LENGTH)
    rate = 2.0 + 1.3 * labels.float()
    phase = 2 * math.pi * torch.rand(count, CHANNELS, 1, generator=generator)
    tilt = torch.stack([torch.ones(count), 0.5 + 0.1 * labels, 1.2 - 0.15 * labels], 1).unsqueeze(-1)
    wave = tilt * torch.sin(2 * math.pi * rate.view(-1, 1, 1) * time + phase)
    wave = wave + 0.3 * torch.randn(count, CHANNELS, LENGTH, generator=generator)
    return wave, labels


def augment(window):
    shift = int(torch.randint(0, LENGTH, ()))
    window = torch.roll(window, shift, dims=-1)
    scale = 0.8 + 0.4 * torch.rand(len(window), 1, 1)
    return window * scale + 0.2 * torch.randn_like(window)


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        )

    def forward(self, window):
        return self.body(window).flatten(1)


class TwoViews(nn.Module):
    def __init__(self, width=32, out=64):
        super().__init__()
        self.encoder = Encoder(width)
        self.projector = nn.Sequential(
            nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out)
        )
        self.predictor = nn.Sequential(nn.Linear(out, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, out))

    def forward(self, first, second):
        z1, z2 = self.projector(self.encoder(first)), self.projector(self.encoder(second))
        return self.predictor(z1), self.predictor(z2), z1, z2


def agreement(prediction, projection):
    return -F.cosine_similarity(prediction, projection, dim=-1).mean()  # HERE


@torch.no_grad()
def inspect(model, train, test):
    model.eval()
    known = F.normalize(model.projector(model.encoder(train[0])), dim=1)
    asked = F.normalize(model.projector(model.encoder(test[0])), dim=1)
    likeness = asked @ known.T
    votes = F.one_hot(train[1][likeness.topk(15, dim=1).indices], CLASSES).sum(1)
    accuracy = (votes.argmax(1) == test[1]).float().mean().item()
    return likeness.mean().item(), accuracy


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(11)
    train, test = make_windows(1920, generator), make_windows(1000, generator)
    loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True, drop_last=True)
    model = TwoViews()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    for epoch in range(EPOCHS):
        model.train()
        total, spread = 0.0, 0.0
        for window, _ in loader:
            p1, p2, z1, z2 = model(augment(window), augment(window))
            loss = 0.5 * (agreement(p1, z2) + agreement(p2, z1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            spread += F.normalize(z1, dim=1).std(0).mean().item()
        print(f"epoch {epoch:2d}  loss {total / len(loader):.4f}  spread {spread / len(loader):.4f}")
    likeness, accuracy = inspect(model, train, test)
    print(f"mean cosine between different windows {likeness:.3f}  nearest-neighbour accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
