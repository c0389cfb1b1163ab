"""Conformers of molecules are predicted and compared after the best rigid alignment (Kabsch, singular value decomposition): bent molecules train well, until a batch brings one whose atoms all lie on a line and the two smallest singular values coincide.

Report: https://github.com/pytorch/pytorch/issues/49886 (SVD backward with several zero singular values: 1/(s_i - s_j) for s_i = s_j = 0, the gradient is NaN)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 45,
    "set": "eleventh", "written": "2026-11-23",
}
ATOMS = 5


def align(moving, fixed):
    """Rotation that brings `moving` onto `fixed`, both centred."""
    covariance = moving.transpose(1, 2) @ fixed
    u, _, vh = torch.linalg.svd(covariance)  # CULPRIT
    sign = torch.linalg.det(u @ vh).detach().sign()
    flip = torch.diag_embed(torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], -1))
    return moving @ (u @ flip @ vh)


class ConformerNet(nn.Module):
    def __init__(self, features=8, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features * ATOMS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * ATOMS))

    def forward(self, atoms):
        xyz = self.net(atoms.flatten(1)).unflatten(1, (ATOMS, 3))
        return xyz - xyz.mean(1, keepdim=True)


class Library:
    def __init__(self):
        self.shape = torch.randn(8 * ATOMS, 3 * ATOMS) / 6

    def bent(self, count):
        atoms = torch.randn(count, ATOMS, 8)
        xyz = torch.tanh(atoms.flatten(1) @ self.shape).unflatten(1, (ATOMS, 3))
        return atoms, xyz - xyz.mean(1, keepdim=True)

    def linear(self, count):
        """Carbon suboxide and its like: O=C=C=C=O along the first axis."""
        atoms = torch.randn(count, ATOMS, 8)
        xyz = torch.zeros(count, ATOMS, 3)
        xyz[..., 0] = torch.tensor([-2.44, -1.28, 0.0, 1.28, 2.44])
        return atoms, xyz

    def batch(self, step):
        atoms, xyz = self.bent(32)
        if step >= 45:
            rare, line = self.linear(1)
            atoms, xyz = torch.cat([atoms[:-1], rare]), torch.cat([xyz[:-1], line])
        return atoms, xyz


def train(model, library, steps=90):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        atoms, xyz = library.batch(step)
        guess = model(atoms)
        loss = (align(guess, xyz) - xyz).pow(2).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0 or 44 <= step <= 47:
            print(f"step {step} squared deviation {loss.item():.4f}")


torch.manual_seed(0)
train(ConformerNet(), Library())
