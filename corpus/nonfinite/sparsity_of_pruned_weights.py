"""Sparse autoencoder with a penalty on the roots of the weights: after the first pruning some weights are zero exactly, where the root is vertical.

Report: https://github.com/speechbrain/speechbrain/issues/181 (a power of one half makes NaN, the gradient at zero; mended in pull 184)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 160,
    "set": "fifth", "written": "2026-11-22",
}


def half_norm(model):
    return sum(m.weight.abs().pow(0.5).sum() for m in model.modules() if isinstance(m, nn.Linear))  # CULPRIT


@torch.no_grad()
def prune(model, share):
    for m in model.modules():
        if isinstance(m, nn.Linear):
            bound = m.weight.abs().flatten().quantile(share)
            m.weight.mul_(m.weight.abs() >= bound)


torch.manual_seed(0)
auto = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16))
optimizer = torch.optim.Adam(auto.parameters(), lr=3e-3)
mixing = torch.randn(4, 16)
ema = [p.detach().clone() for p in auto.parameters()]
for step in range(240):
    x = torch.randn(32, 4) @ mixing
    loss = nn.functional.mse_loss(auto(x), x) + 1e-4 * half_norm(auto)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for average, p in zip(ema, auto.parameters()):
            average.lerp_(p, 0.01)
    if step == 159:
        prune(auto, 0.3)
    if step % 20 == 0 or step == 160:
        print(step, loss.item(), sum((p == 0).sum().item() for p in auto.parameters()), auto[0].weight.isnan().any().item())
