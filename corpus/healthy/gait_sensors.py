"""Recognise gaits from sensor windows; the labelled people wear the sensor on the hip, the others on the wrist.

What looks suspicious: an own autograd function returns the negative of its incoming gradient, so the features are pushed
to make the place classifier worse, and the place loss does not fall but comes back to about ln 2. This is right: the reversed
gradient removes what betrays the place of the sensor, and the accuracy on the wrist rises with it.

Report: https://github.com/CuthbertCai/pytorch_DANN/issues/13
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "gait loss falls, place loss climbs towards 0.69, wrist accuracy rises",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

CHANNELS = 24
GAITS = 4


def make_people(n, wrist, seed):
    shared = np.random.default_rng(21)
    centres = shared.normal(0, 1.2, size=(GAITS, 8))
    mix = shared.normal(0, 0.5, size=(8, CHANNELS))
    shift = 0.5 * (centres[0] - centres[1]) @ mix + 0.5 * shared.normal(0, 1.0, size=CHANNELS)
    rng = np.random.default_rng(seed)
    gait = rng.integers(0, GAITS, size=n)
    x = (centres[gait] + 0.5 * rng.normal(size=(n, 8))) @ mix + 0.3 * rng.normal(size=(n, CHANNELS))
    if wrist:
        x = x + shift
    return torch.tensor(x, dtype=torch.float32), torch.tensor(gait)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class GaitNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.gait = nn.Linear(width, GAITS)
        self.place = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, strength):
        f = self.features(x)
        return self.gait(f), self.place(Reverse.apply(f, strength)).squeeze(-1)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x, 0.0)[0].argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(1)
    hip = TensorDataset(*make_people(2000, wrist=False, seed=1))
    wrist_x, _ = make_people(2000, wrist=True, seed=2)
    test_x, test_y = make_people(800, wrist=True, seed=3)
    hips = DataLoader(hip, batch_size=100, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))
    wrists = DataLoader(TensorDataset(wrist_x), batch_size=100, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(2))
    model = GaitNet()
    optimizer = torch.optim.Adam([
        {"params": [*model.features.parameters(), *model.gait.parameters()]},
        {"params": model.place.parameters(), "lr": 2e-3},
    ], lr=5e-4, betas=(0.5, 0.99))
    steps, total = 0, 60 * len(hips)
    for epoch in range(60):
        sums = np.zeros(2)
        for (xh, yh), (xw,) in zip(hips, wrists):
            strength = 2.0 / (1.0 + np.exp(-8.0 * steps / total)) - 1.0
            gait, place_h = model(xh, strength)
            _, place_w = model(xw, strength)
            gait_loss = nn.functional.cross_entropy(gait, yh)
            logits = torch.cat([place_h, place_w])
            where = torch.cat([torch.zeros(len(place_h)), torch.ones(len(place_w))])
            place_loss = nn.functional.binary_cross_entropy_with_logits(logits, where)
            optimizer.zero_grad()
            (gait_loss + place_loss).backward()
            optimizer.step()
            steps += 1
            sums += gait_loss.item(), place_loss.item()
        if epoch % 10 == 9 or epoch == 0:
            gait_mean, place_mean = sums / len(hips)
            print(f"epoch {epoch + 1} gait loss {gait_mean:.3f} place loss {place_mean:.3f} "
                  f"wrist accuracy {accuracy(model, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
