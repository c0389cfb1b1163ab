"""SimSiam with detached targets, warm restarts, and a predictor without weight decay."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}



def load_marks():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))
    return x[order[:1400]], y[order[:1400]], x[order[1400:]], y[order[1400:]]


def smudge(x):
    """Random small shift, turn, scale and chalk dust."""
    n = len(x)
    angle = (torch.rand(n) - 0.5) * 0.5
    scale = 1 + (torch.rand(n) - 0.5) * 0.3
    shift = (torch.rand(n, 2) - 0.5) * 0.4
    theta = torch.stack(
        [
            torch.stack([scale * angle.cos(), -scale * angle.sin(), shift[:, 0]], 1),
            torch.stack([scale * angle.sin(), scale * angle.cos(), shift[:, 1]], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    out = F.grid_sample(x, grid, align_corners=False)
    keep = (torch.rand(n, 1, 8, 8) > 0.1).float()
    return out * keep + 0.08 * torch.randn_like(out)


class Encoder(nn.Module):
    def __init__(self, width=32, dim=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.Flatten(),
        )
        self.project = nn.Sequential(
            nn.Linear(2 * width * 16, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(),
            nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim, affine=False),
        )

    def forward(self, x):
        h = self.conv(x)
        return h, self.project(h)


class Pair(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = Encoder(dim=dim)
        self.predict = nn.Sequential(
            nn.Linear(dim, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, dim)
        )

    def forward(self, a, b):
        _, za = self.encoder(a)
        _, zb = self.encoder(b)
        one = F.cosine_similarity(self.predict(za), zb.detach()).mean()
        two = F.cosine_similarity(self.predict(zb), za.detach()).mean()
        return -0.5 * (one + two), za


@torch.no_grad()
def neighbour_accuracy(model, x, y, tx, ty, k=5):
    model.eval()
    bank = F.normalize(model.encoder(x)[1], dim=1)
    query = F.normalize(model.encoder(tx)[1], dim=1)
    near = (query @ bank.T).topk(k, dim=1).indices
    guess = y[near].mode(dim=1).values
    model.train()
    return (guess == ty).float().mean().item()


def main():
    torch.manual_seed(7)
    x, y, tx, ty = load_marks()
    model = Pair()
    opt = torch.optim.SGD(
        [
            {"params": model.encoder.parameters(), "weight_decay": 5e-4},
            {"params": model.predict.parameters(), "weight_decay": 0.0},
        ],
        lr=0.06, momentum=0.9,
    )
    per_epoch = len(x) // 100
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=8 * per_epoch, T_mult=1, eta_min=1e-3)
    for epoch in range(16):
        perm = torch.randperm(len(x))
        total = spread = 0.0
        for i in range(per_epoch):
            batch = x[perm[i * 100 : (i + 1) * 100]]
            loss, z = model(smudge(batch), smudge(batch))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
            spread += F.normalize(z.detach(), dim=1).std(0).mean().item()
        if epoch % 2 == 1:
            acc = neighbour_accuracy(model, x, y, tx, ty)
            print(f"epoch {epoch + 1} loss {total / per_epoch:.3f} spread {spread / per_epoch:.3f} neighbours {acc:.3f}")


if __name__ == "__main__":
    main()
