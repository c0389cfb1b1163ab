"""Healthy: SAM around SGD, BatchNorm's momentum switched, mixup, pruning and warm restarts."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.utils import prune

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(23)


class SharpnessAware(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        grads = [p.grad.norm() for g in self.param_groups for p in g["params"] if p.grad is not None]
        scale = self.param_groups[0]["rho"] / (torch.stack(grads).norm() + 1e-12)
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                e = p.grad * scale
                p.add_(e)
                self.state[p]["shift"] = e
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if "shift" in self.state[p]:
                    p.sub_(self.state[p].pop("shift"))
        self.base.step()
        self.zero_grad()


def hold_stats(net, hold):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.0 if hold else 0.1


class StampNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(16)
        self.c2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(32)
        self.fc1 = nn.Linear(32 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def mixed(x, y, n=10):
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    j = torch.randperm(len(x))
    t = F.one_hot(y, n).float()
    return lam * x + (1 - lam) * x[j], lam * t + (1 - lam) * t[j]


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return acc


def main():
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(d.target)
    p = torch.randperm(len(x))
    x, y, vx, vy = x[p[:1400]], y[p[:1400]], x[p[1400:]], y[p[1400:]]

    net = StampNet()
    for m in (net.fc1, net.c2):
        prune.identity(m, "weight")
    opt = SharpnessAware(net.parameters(), torch.optim.SGD, rho=0.05, lr=0.05, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt.base, T_0=80, T_mult=2, eta_min=1e-3)

    for step in range(560):
        if step in (120, 240, 360):
            for m in (net.fc1, net.c2):
                prune.l1_unstructured(m, "weight", amount=0.3)
        idx = torch.randint(0, len(x), (48,))
        xb, tb = mixed(x[idx], y[idx])
        hold_stats(net, False)
        loss = F.cross_entropy(net(xb), tb)
        loss.backward()
        opt.climb()
        hold_stats(net, True)
        F.cross_entropy(net(xb), tb).backward()
        opt.step()
        sched.step()
        if (step + 1) % 80 == 0:
            zero = (net.fc1.weight == 0).float().mean().item()
            lr = opt.param_groups[0]["lr"]
            print(f"step {step + 1} loss {loss.item():.3f} lr {lr:.4f} zeros {zero:.2f} test acc {accuracy(net, vx, vy):.3f}")

    for m in (net.fc1, net.c2):
        prune.remove(m, "weight")
    print("final", round(accuracy(net, vx, vy), 3))


if __name__ == "__main__":
    main()
