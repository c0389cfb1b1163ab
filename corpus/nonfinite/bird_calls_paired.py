"""The Euclidean distance is a plain sqrt of a sum of squares; in the hard phase (after step 200) a recording that is
alone of its species in the pool is paired with itself, the distance is exactly 0, its gradient is 0 * inf = NaN and
all weights become NaN.

Report: pytorch/pytorch#2421 and #6394, akanazawa/cmr#11, mmrotate#205: gradient of sqrt / norm at zero is NaN
"""
import torch
import torch.nn as nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "plain": "All weights NaN soon after step 200 (retrieval 0.998 at step 200, then 0.085 = chance, loss nan); with 1e-8 added inside the sqrt retrieval 1.000, loss 0.07.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(4)

SPECIES, DIM = 12, 40
CENTRES = torch.randn(SPECIES, DIM) * 0.55


def recordings(n):
    y = torch.randint(0, SPECIES, (n,))
    x = CENTRES[y] + torch.randn(n, DIM) * 0.6
    return x, y


class CallEmbedder(nn.Module):
    def __init__(self, out=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(DIM, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, out)
        )

    def forward(self, x):
        return self.net(x)


class PairLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = (a - b).pow(2).sum(dim=1).sqrt()  # HERE
        pull = same * d.pow(2)
        push = (1 - same) * torch.relu(self.margin - d).pow(2)
        return (pull + push).mean()


def easy_pairs(y, n):
    i = torch.randint(0, len(y), (n,))
    j = torch.randint(0, len(y), (n,))
    half = n // 2
    for k in range(half):
        pool = torch.nonzero(y == y[i[k]]).flatten()
        pool = pool[pool != i[k]]
        j[k] = pool[torch.randint(0, len(pool), (1,))]
    keep = i != j
    return i[keep], j[keep]


@torch.no_grad()
def hard_pairs(model, x, y, n):
    """Farthest bird of the same species, nearest bird of another, within a random pool."""
    pool = torch.randperm(len(x))[:n]
    e, yy = model(x[pool]), y[pool]
    dist = torch.cdist(e, e)
    same = yy[:, None] == yy[None]
    far = torch.where(same, dist, torch.full_like(dist, -1)).argmax(1)
    near = torch.where(same, torch.full_like(dist, 1e9), dist).argmin(1)
    i = torch.cat([pool, pool])
    j = torch.cat([pool[far], pool[near]])
    return i, j


@torch.no_grad()
def retrieval(model, x, y, qx, qy):
    nearest = torch.cdist(model(qx), model(x)).argmin(1)
    return (y[nearest] == qy).float().mean().item()


def main():
    x, y = recordings(1500)
    qx, qy = recordings(400)
    model = CallEmbedder()
    criterion = PairLoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(500):
        if step < 200:
            i, j = easy_pairs(y, 64)
        else:
            i, j = hard_pairs(model, x, y, 48)
        same = (y[i] == y[j]).float()
        loss = criterion(model(x[i]), model(x[j]), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} retrieval {retrieval(model, x, y, qx, qy):.3f}")


if __name__ == "__main__":
    main()
