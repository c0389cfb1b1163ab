"""An autoencoder of digits: an init function sets all weights to a constant of the fan-in, in place of a deviation of that size."""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "units-never-differ", "framework": "plain", "kind": "units-never-differ", "line": ("cause", "CONSTANT"),
    "set": "ledger", "written": "2026-11-27",
}


def init(net):
    for name, p in net.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
        else:
            nn.init.constant_(p, p.shape[1] ** -0.5)  # CONSTANT


torch.manual_seed(0)
x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
net = nn.Sequential(nn.Linear(64, 20), nn.Softplus(), nn.Linear(20, 64), nn.Sigmoid())
init(net)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(240):
    pick = torch.randint(0, len(x), (64,))
    loss = nn.functional.binary_cross_entropy(net(x[pick]), x[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(step, loss.item())
