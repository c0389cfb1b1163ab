"""Few labels at a new radar site: a student learns from its own labels and from a slowly moving teacher on unlabelled sweeps.

After https://github.com/saltoricristiano/cosmix-uda/issues/21 (a teacher that degrades).
"""
import copy
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "kind": "buffers-left-behind",
    "line": ("cause", "AVERAGE"),
    "plain": "the teacher's accuracy is low all the time and the student gets worse as the weight of the teacher grows",
    "set": "twentythird",
    "written": "2026-11-28",
}

CLASSES, GATES = 5, 40


def sweeps(n, seed, gain=6.0, offset=3.0):
    """Echo strength along the range gates: five kinds of target, with clutter, on the raw scale of the receiver."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, CLASSES, size=n)
    gate = np.arange(GATES)
    x = np.zeros((n, GATES))
    for i, k in enumerate(kind):
        c = rng.uniform(10, 30)
        if k == 0:
            x[i] = np.exp(-0.5 * ((gate - c) / 1.5) ** 2)
        elif k == 1:
            x[i] = np.exp(-0.5 * ((gate - c) / 5) ** 2)
        elif k == 2:
            x[i] = np.exp(-0.5 * ((gate - c + 4) / 1.5) ** 2) + np.exp(-0.5 * ((gate - c - 4) / 1.5) ** 2)
        elif k == 3:
            x[i] = 0.7 * (np.abs(gate - c) < 5)
        else:
            x[i] = np.where(gate > c, np.exp(-(gate - c) / 6.0), 0)
    x = gain * (x * rng.uniform(0.7, 1.3, size=(n, 1)) + 0.16 * rng.normal(size=x.shape)) + offset
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(kind)


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
                                  nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
                                  nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU(), nn.AdaptiveMaxPool1d(1))
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.out(self.body(x).squeeze(2))


class Momentum:
    def __init__(self, decay):
        self.decay = decay

    @torch.no_grad()
    def __call__(self, teacher, student, step):
        d = min(self.decay, 1 - 1 / (step + 1))
        for slow, fast in zip(teacher.parameters(), student.parameters()):  # AVERAGE
            slow.mul_(d).add_(fast, alpha=1 - d)


def disturb(x, gen):
    scale = 0.8 + 0.4 * torch.rand(len(x), 1, 1, generator=gen)
    return x * scale + 0.5 * torch.randn(x.shape, generator=gen)


@torch.no_grad()
def accuracy(net, x, y):
    was = net.training
    net.eval()
    hit = (net(x).argmax(1) == y).float().mean().item()
    net.train(was)
    return hit


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(4)
    x, y = sweeps(100, seed=1)
    free, _ = sweeps(3000, seed=2)
    held = sweeps(1000, seed=3)
    student = Net()
    teacher = copy.deepcopy(student).eval()
    for p in teacher.parameters():
        p.requires_grad_(False)
    follow = Momentum(0.98)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    rounds, ramp = 600, 250
    for step in range(rounds):
        pick = torch.randint(0, len(x), (32,), generator=gen)
        more = free[torch.randint(0, len(free), (96,), generator=gen)]
        out = student(torch.cat([disturb(x[pick], gen), disturb(more, gen)]))
        known, unknown = out[:32], out[32:]
        with torch.no_grad():
            goal = F.softmax(teacher(more) / 0.7, dim=1)
        weight = 2.0 * min(1.0, step / ramp)
        agree = -(goal * F.log_softmax(unknown, dim=1)).sum(dim=1).mean()
        loss = F.cross_entropy(known, y[pick]) + weight * agree
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, step)
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}  student {accuracy(student, *held):.3f}  teacher {accuracy(teacher, *held):.3f}")


if __name__ == "__main__":
    main()
