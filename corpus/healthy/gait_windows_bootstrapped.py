"""Walking windows of a shoe sensor: an encoder is trained without labels by predicting a slow copy of itself, then a
linear probe tells four walkers apart.

Looks suspicious: the target network has no gradients, is written in place after every step, its output is cut off from
the graph, and nothing pushes different windows apart. It is right: this is the bootstrap scheme (online network with a
predictor, slowly following target), buffers are followed too, and the probe improves over the untrained encoder.

Asked in public: https://github.com/lucidrains/byol-pytorch/issues/39
"""
import copy

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

EXPECT = {
    "kind": None,
    "plain": "The loss falls and the probe's accuracy grows over that of the untrained encoder.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

WALKERS, WINDOW = 4, 48


def make_windows(n, rng):
    y = rng.integers(0, WALKERS, n)
    t = np.arange(WINDOW)[None]
    freq = (0.18 + 0.03 * y + rng.normal(0, 0.004, n))[:, None]
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    x = np.sin(2 * np.pi * freq * t + phase) + 0.5 * np.sin(4 * np.pi * freq * t + 2 * phase + y[:, None])
    return torch.tensor(x + rng.normal(0, 0.3, x.shape), dtype=torch.float32), y


def augment(x):
    shift = int(torch.randint(0, WINDOW, (1,)))
    return torch.roll(x, shift, 1) * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.2 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, width, 9, stride=2), nn.BatchNorm1d(width), nn.ReLU(),
                                  nn.Conv1d(width, width, 5, stride=2), nn.BatchNorm1d(width), nn.ReLU())
        self.project = nn.Sequential(nn.Linear(width, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 16))

    def features(self, x):
        return self.conv(x[:, None]).mean(-1)

    def forward(self, x):
        return self.project(self.features(x))


class Bootstrap:
    def __init__(self, encoder, tau=0.98):
        self.online, self.tau = encoder, tau
        self.predict = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
        self.target = copy.deepcopy(encoder).requires_grad_(False)
        self.opt = torch.optim.AdamW([*encoder.parameters(), *self.predict.parameters()], lr=2e-3)

    def loss(self, a, b):
        with torch.no_grad():
            goal = self.target(b)
        return 2 - 2 * nn.functional.cosine_similarity(self.predict(self.online(a)), goal).mean()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters()):
            slow.lerp_(fast, 1 - self.tau)
        for slow, fast in zip(self.target.buffers(), self.online.buffers()):
            slow.copy_(fast)

    def step(self, x):
        a, b = augment(x), augment(x)
        loss = 0.5 * (self.loss(a, b) + self.loss(b, a))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.follow()
        return loss.item()


@torch.no_grad()
def probe(encoder, x, y, xv, yv):
    encoder.eval()
    clf = LogisticRegression(max_iter=300).fit(encoder.features(x[:400]).numpy(), y[:400])
    score = clf.score(encoder.features(xv).numpy(), yv)
    encoder.train()
    return score


def main():
    torch.manual_seed(19)
    rng = np.random.default_rng(19)
    x, y = make_windows(1536, rng)
    xv, yv = make_windows(500, rng)
    scheme = Bootstrap(Encoder())
    print(f"untrained probe {probe(scheme.online, x, y, xv, yv):.3f}")
    for epoch in range(4):
        order = torch.randperm(len(x))
        losses = [scheme.step(x[i]) for i in order.split(64)]
        print(f"epoch {epoch}  loss {np.mean(losses):.4f}  probe {probe(scheme.online, x, y, xv, yv):.3f}")


if __name__ == "__main__":
    main()
