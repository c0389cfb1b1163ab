"""Sharpness-aware minimisation with an SWA tail on digits.

Right because: each iteration does two backward passes - the first climbs to the worst nearby
weights (written in place under no_grad), the second gives the gradient that is applied after
the weights are put back exactly; BatchNorm statistics are frozen in the second pass; the
averaged model is evaluated only after its BatchNorm statistics are recomputed.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["origin"] = p.detach().clone()
                p.add_(p.grad, alpha=(group["rho"] / (norm + 1e-12)).item())

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                if "origin" in self.state[p]:
                    p.copy_(self.state[p].pop("origin"))
        self.base.step()

    def step(self, closure=None):
        raise RuntimeError("call climb() and descend()")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.head = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


def running_stats(net, on):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.1 if on else 0.0


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    d = load_digits()
    x, y = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(d.target)
    loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=70, shuffle=True)
    net = Net()
    opt = SAM(net.parameters(), torch.optim.SGD, rho=0.05, lr=0.05, momentum=0.9, nesterov=True)
    averaged, swa_from = AveragedModel(net), 8
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt.base, T_max=swa_from)
    swa_schedule = SWALR(opt.base, swa_lr=0.02, anneal_epochs=2)
    for epoch in range(14):
        net.train()
        for xb, yb in loader:
            loss = F.cross_entropy(net(xb), yb, label_smoothing=0.05)
            loss.backward()
            opt.climb()
            opt.zero_grad()
            running_stats(net, False)
            F.cross_entropy(net(xb), yb, label_smoothing=0.05).backward()
            running_stats(net, True)
            opt.descend()
            opt.zero_grad()
        if epoch >= swa_from:
            averaged.update_parameters(net)
            swa_schedule.step()
        else:
            schedule.step()
        print(f"epoch {epoch} loss {loss.item():.4f} test {accuracy(net, x[1400:], y[1400:]):.3f}")
    update_bn(loader, averaged)
    print("swa test", accuracy(averaged, x[1400:], y[1400:]))


if __name__ == "__main__":
    main()
