"""Two views of each digit are drawn together and both are trained, as VICReg does: a variance and a covariance term keep the
digits apart, so nothing collapses."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy: both sides of a comparison are trained, with a variance term",
    "kind": "none",
    "what": "The invariance term has no detach; the variance term keeps the deviation of each feature near 1.",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(12)
torch.set_num_threads(1)


def spread_terms(z):
    z = z - z.mean(0)
    covariance = z.T @ z / (len(z) - 1)
    apart = F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
    return 25 * apart + (covariance - covariance.diag().diag()).square().sum() / z.shape[1]


images = torch.tensor(load_digits().data).float() / 16
model = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    x = images[torch.randint(len(images), (96,))]
    one, other = (model(x * (torch.rand_like(x) > 0.2)) for _ in range(2))
    loss = 25 * F.mse_loss(one, other) + spread_terms(one) + spread_terms(other)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}  loss {loss.item():.3f}  deviation {one.std(0).mean().item():.3f}")
