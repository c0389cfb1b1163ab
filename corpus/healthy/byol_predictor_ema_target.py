"""BYOL on the bundled digits: online encoder + predictor chase an EMA copy of the encoder.

Right because: the target network is a deepcopy whose parameters never receive gradients
(requires_grad False, evaluated under no_grad) and is moved only by the EMA update; the
optimizer holds exactly the online encoder and the predictor.  A linear probe at the end
confirms that the representation did not collapse.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = mlp(64, 128, 64)
        self.projector = mlp(64, 64, 32)

    def forward(self, x):
        return self.projector(F.relu(self.encoder(x)))


def augment(x, gen):
    """Shift by at most one pixel, erase some pixels, add noise."""
    img = x.view(-1, 8, 8)
    dx, dy = torch.randint(-1, 2, (2,), generator=gen).tolist()
    img = torch.roll(img, (dx, dy), (1, 2))
    keep = (torch.rand(img.shape, generator=gen) > 0.1).float()
    return (img * keep + 0.05 * torch.randn(img.shape, generator=gen)).reshape(-1, 64)


def regression_loss(p, z):
    return 2 - 2 * (F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(1)


@torch.no_grad()
def ema_update(online, target, tau):
    for o, t in zip(online.parameters(), target.parameters()):
        t.lerp_(o, 1 - tau)
    for o, t in zip(online.buffers(), target.buffers()):
        t.copy_(o)


def probe(net, x, y):
    net.eval()
    with torch.inference_mode():
        h = net.encoder(x).numpy()
    net.train()
    cut = 1200
    clf = LogisticRegression(max_iter=300).fit(h[:cut], y[:cut])
    return clf.score(h[cut:], y[cut:])


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    data, labels = load_digits(return_X_y=True)
    x = torch.tensor(data, dtype=torch.float32) / 16
    online, predictor = Online(), mlp(32, 64, 32)
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.AdamW([*online.parameters(), *predictor.parameters()], lr=2e-3, weight_decay=1e-4)

    steps, running = 500, None
    for step in range(steps):
        batch = x[torch.randint(0, len(x), (128,), generator=gen)]
        a, b = augment(batch, gen), augment(batch, gen)
        with torch.no_grad():
            za, zb = target(a), target(b)
        loss = (regression_loss(predictor(online(a)), zb) + regression_loss(predictor(online(b)), za)).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema_update(online, target, tau=0.97 + 0.029 * step / steps)
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step} loss {running:.4f}")
    print("probe accuracy", probe(online, x, labels))


if __name__ == "__main__":
    main()
