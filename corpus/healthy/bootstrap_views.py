"""Self supervised digits in the manner of BYOL with a weight normed predictor.

Story: an exponential moving average of the online network gives the targets: a deep copy whose
parameters never get a gradient, changed in place after each step through `lerp_`, under
no_grad.  Two losses share a graph, so the first of the two backward calls retains it on
purpose; a gradient hook clips the projector.  Questions why the target has no grad are
frequent (lucidrains/byol-pytorch; written from general knowledge); the script is right.
"""
import copy
from types import SimpleNamespace

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from sklearn.datasets import load_digits

EXPECT = {"class": "x", "kind": "none", "plain": {"outcome": "silent"}, "set": "fourteenth", "written": "2026-11-26"}

HP = SimpleNamespace(steps=400, batch=128, lr=1e-3, decay=0.98, dim=32, clip=0.5)


class Online(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten(),
        )
        self.norm = nn.BatchNorm1d(32 * 16)
        self.project = nn.Linear(32 * 16, dim)

    def forward(self, x):
        return self.project(self.norm(self.encoder(x)))


def augment(x):
    shift = torch.randint(-1, 2, (2,)).tolist()
    x = torch.roll(x, shift, dims=(2, 3))
    return (x * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.1 * torch.randn_like(x)).clamp_(0, 1)


class Byol:
    def __init__(self):
        self.online = Online(HP.dim)
        self.predict = nn.Sequential(weight_norm(nn.Linear(HP.dim, 64)), nn.ReLU(), nn.Linear(64, HP.dim))
        self.classify = nn.Linear(HP.dim, 10)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.online.project.weight.register_hook(lambda g: g.clamp(-HP.clip, HP.clip))
        body = list(self.online.parameters()) + list(self.predict.parameters())
        self.opt_body = torch.optim.AdamW(body, lr=HP.lr)
        self.opt_probe = torch.optim.SGD(self.classify.parameters(), lr=0.3)

    def agreement(self, z, view):
        with torch.no_grad():
            wanted = F.normalize(self.target(view), dim=-1)
        return 2 - 2 * (F.normalize(self.predict(z), dim=-1) * wanted).sum(-1).mean()

    @torch.no_grad()
    def move_target(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters()):
            slow.lerp_(fast, 1 - HP.decay)

    def step(self, x, y):
        a, b = augment(x), augment(x)
        z_a, z_b = self.online(a), self.online(b)
        forth = self.agreement(z_a, b)
        back = self.agreement(z_b, a) + self.decorrelation(z_a)
        self.opt_body.zero_grad()
        forth.backward(retain_graph=True)
        back.backward()
        self.opt_body.step()
        self.move_target()
        probe_loss = F.cross_entropy(self.classify(F.normalize(z_a.detach(), dim=-1)), y)
        self.opt_probe.zero_grad()
        probe_loss.backward()
        self.opt_probe.step()
        return (forth + back).item() / 2, probe_loss.item()

    @staticmethod
    def decorrelation(z):
        z = (z - z.mean(0)) / (z.std(0) + 1e-4)
        c = z.t() @ z / len(z)
        return (c - torch.eye(len(c))).pow(2).sum() / len(c)


def main():
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    learner = Byol()
    for step in range(HP.steps):
        idx = torch.randint(len(images), (HP.batch,))
        loss, probe = learner.step(images[idx], labels[idx])
        if step % 50 == 0:
            print(f"step {step:3d} agreement loss {loss:.3f} linear probe {probe:.3f}")


if __name__ == "__main__":
    main()
