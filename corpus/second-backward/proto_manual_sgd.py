"""Prototype classification with hand written SGD (no torch.optim)."""
import time
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-second", "kind": "second-backward", "bridge_marker": "CULPRIT", "step": 130,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(10)
raw = load_digits()
X = torch.tensor(raw.data, dtype=torch.float32) / 16.0
Y = torch.tensor(raw.target)
SIZES = [64, 640, 640, 48]
LR, MOM, TAU = 0.05, 0.9, 0.2

params = []
for a, b in zip(SIZES[:-1], SIZES[1:]):
    params.append((torch.randn(a, b) * (2.0 / a) ** 0.5).requires_grad_())
    params.append(torch.zeros(b, requires_grad=True))
velocity = [torch.zeros_like(p) for p in params]


def embed(x):
    for i in range(0, len(params), 2):
        x = x @ params[i] + params[i + 1]
        if i + 2 < len(params):
            x = F.relu(x)
    return F.normalize(x, dim=1)


def class_means(z, y):
    onehot = F.one_hot(y, 10).float()
    return (onehot.t() @ z) / onehot.sum(0).clamp(min=1).unsqueeze(1)  # CULPRIT


with torch.no_grad():
    protos = class_means(embed(X), Y)

t0 = time.time()
for step in range(400):
    idx = torch.randint(0, len(X), (384,))
    x, y = X[idx], Y[idx]
    z = embed(x)
    loss = F.cross_entropy(z @ F.normalize(protos, dim=1).t() / TAU, y)
    loss.backward()
    with torch.no_grad():
        for p, v in zip(params, velocity):
            v.mul_(MOM).add_(p.grad)
            p.sub_(LR * v)
            p.grad = None
    if step < 130:
        if step % 10 == 0:                      # coarse refresh while features move fast
            with torch.no_grad():
                protos = class_means(embed(X), Y)
    else:
        protos = 0.95 * protos + 0.05 * class_means(z, y)
    if step % 50 == 49:
        print(f"step {step} loss {loss.item():.4f} {(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")
