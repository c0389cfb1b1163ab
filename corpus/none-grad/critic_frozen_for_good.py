"""GAN whose generator step freezes the critic with a helper; after step 120 of it nobody turns the critic on again.
"""
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "none-grad", "cut_marker": "CUT", "set": "ledger", "written": "2026-11-27",
}
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
og = torch.optim.Adam(G.parameters(), 1e-3)
od = torch.optim.Adam(D.parameters(), 1e-3)
def set_requires_grad(nets, requires_grad=False):
    for net in nets:
        for p in net.parameters():
            p.requires_grad = requires_grad
def train_d(step):
    if step < 120:
        set_requires_grad([D], True)
    real = torch.randn(16, 2)
    with torch.no_grad():
        fake = G(torch.randn(16, 4))
    loss = D(fake).mean() - D(real).mean()
    od.zero_grad(); loss.backward(); od.step()
def train_g():
    set_requires_grad([D], False)  # CUT
    loss = -D(G(torch.randn(16, 4))).mean()
    og.zero_grad(); loss.backward(); og.step()
for step in range(200):
    train_d(step)
    train_g()
