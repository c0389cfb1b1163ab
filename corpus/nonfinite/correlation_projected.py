"""Correlations fitted by hand-written descent and projected to [-1, 1]: once one of them stays at the bound, the square root has no slope there."""
import torch

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 801,
    "set": "late", "written": "2026-11-22",
}


def correlated(rho, normal):
    first, second = normal[:, : len(rho)], normal[:, len(rho) :]
    return first, rho * first + torch.sqrt(1 - rho.square()) * second  # CULPRIT


torch.manual_seed(0)
truth = torch.tensor([0.3, -0.55, 0.8, 0.995])
rho = torch.zeros(4, requires_grad=True)
scale = torch.ones(2, 4, requires_grad=True)
params, rate = [rho, scale], 4e-3
for step in range(1000):
    sample = torch.randn(256, 8)
    a, b = correlated(rho, sample)
    a, b = a * scale[0], b * scale[1]
    observed = torch.randn(256, 4)
    partner = truth * observed + (1 - truth.square()).sqrt() * torch.randn(256, 4)
    loss = ((a * b).mean(0) - (observed * partner).mean(0)).square().sum()
    loss = loss + (a.var(0) - 1).square().sum() + (b.var(0) - 1).square().sum()
    loss.backward()
    with torch.no_grad():
        for p in params:
            p -= rate * p.grad
            p.grad = None
        rho.clamp_(-1, 1)
    if step % 100 == 0:
        print(step, round(loss.item(), 4), [round(r, 3) for r in rho.tolist()])
