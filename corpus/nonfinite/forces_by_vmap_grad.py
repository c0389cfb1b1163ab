"""Interatomic potential with forces from torch.func: a disordered crystal has two atoms on one site, the derivative of their distance is 0 / 0.

Report: https://github.com/pytorch/functorch/issues/1097 (derivatives of a norm at zero under torch.func)
"""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "edge-of-domain", "framework": "torch.func", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}

pairs = torch.triu_indices(5, 5, 1)


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Linear(24, 1))
        self.register_buffer("centres", torch.linspace(0.0, 3.0, 8))

    def forward(self, pos):
        d = pos[pairs[0]] - pos[pairs[1]]
        r = d.square().sum(1).sqrt()  # CULPRIT
        basis = torch.exp(-4 * (r[:, None] - self.centres).square())
        return self.radial(basis).sum()


g = torch.Generator().manual_seed(11)
positions = torch.randn(120, 5, 3, generator=g)
positions[13, 4] = positions[13, 1]  # half occupancy
data = TensorDataset(positions, -0.3 * positions)

torch.manual_seed(0)
net = Potential()
opt = torch.optim.Adam(net.parameters(), 1e-3)


def forces(params, pos):
    return -grad(lambda p: functional_call(net, params, (p,)))(pos)


for step, (pos, target) in enumerate(DataLoader(data, batch_size=4)):
    params = dict(net.named_parameters())
    predicted = vmap(forces, in_dims=(None, 0))(params, pos)
    loss = nn.functional.l1_loss(predicted, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if net.radial[0].weight.isnan().any():
        print("reproduced at", step)
        break
