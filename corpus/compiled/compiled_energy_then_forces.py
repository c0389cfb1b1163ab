"""Neural potential that is compiled: it is trained on energies first, when the forces join the loss backward has to go through a gradient of the compiled region.

Report: https://github.com/torchmd/torchmd-net/issues/307 (also NVIDIA/cuEquivariance issue 268 and pytorch/pytorch issue 91469)
"""
import torch
import torch._functorch.config
from torch import nn

EXPECT = {
    "class": "compile", "kind": "backward-error", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, pos):
        d2 = (pos[:, :, None] - pos[:, None]).square().sum(-1)
        features = torch.stack([torch.exp(-d2).sum(2), torch.exp(-0.5 * d2).sum(2), torch.exp(-0.1 * d2).sum(2)], -1)
        return self.net(features).sum((1, 2))


def reference(pos):
    d2 = (pos[:, :, None] - pos[:, None]).square().sum(-1)
    return 0.1 * d2.sum((1, 2)), -0.4 * (pos.shape[1] * pos - pos.sum(1, keepdim=True))


torch._functorch.config.donated_buffer = False
torch.manual_seed(0)
model = Energy()
compiled = torch.compile(model, backend="aot_eager")
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(50):
    pos = torch.randn(4, 5, 3, requires_grad=True)
    energy_ref, forces_ref = reference(pos.detach())
    energy = compiled(pos)  # CULPRIT
    loss = nn.functional.mse_loss(energy, energy_ref)
    if step >= 25:
        forces = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]
        loss = loss + nn.functional.mse_loss(forces, forces_ref)
    opt.zero_grad()
    loss.backward()
    opt.step()
