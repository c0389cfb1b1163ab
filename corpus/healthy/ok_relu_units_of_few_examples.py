"""ReLU units without a gradient that are ordinary: a picture is fitted from one fixed input, as in a deep image prior, so that
about half of the units are zero for it from the start; and a wide layer has some dead units among many."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(4)
torch.set_num_threads(1)
picture = torch.linspace(0, 1, 64)
seed = torch.randn(1, 16)
prior = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
wide = nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
first, second = torch.optim.Adam(prior.parameters(), lr=1e-3), torch.optim.SGD(wide.parameters(), lr=0.05, momentum=0.9)
law = torch.randn(6)
for step in range(260):
    fit = (prior(seed) - picture).square().mean()
    first.zero_grad()
    fit.backward()
    first.step()
    x = torch.rand(64, 6)
    loss = (wide(x).squeeze(1) - (x @ law).sin()).square().mean()
    second.zero_grad()
    loss.backward()
    second.step()
print(f"picture {fit.item():.2e}  loss {loss.item():.3f}")
