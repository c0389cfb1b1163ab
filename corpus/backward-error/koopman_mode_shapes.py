"""Koopman autoencoder: after the warm-up the eigenvectors of the learned operator are compared with known shapes, a loss that depends on their arbitrary phase.

Report: https://github.com/GaloisInc/dlkoopman/issues/1
"""
import torch
from torch import nn

EXPECT = {
    "class": "cpp-error", "kind": "backward-error", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Koopman(nn.Module):
    def __init__(self, dim=4, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 24), nn.Tanh(), nn.Linear(24, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 24), nn.Tanh(), nn.Linear(24, dim))
        q = torch.linalg.qr(torch.randn(latent, latent)).Q
        self.operator = nn.Parameter(0.95 * q)

    def modes(self):
        values, vectors = torch.linalg.eig(self.operator)  # CULPRIT
        return values, vectors

    def forward(self, x):
        z = self.encoder(x)
        return z, self.decoder(z), z @ self.operator.t()


torch.manual_seed(2)
net = Koopman()
opt = torch.optim.Adam(net.parameters(), 1e-3)
turn = torch.tensor([[0.9, -0.4, 0.0, 0.0], [0.4, 0.9, 0.0, 0.0], [0.0, 0.0, 0.8, -0.2], [0.0, 0.0, 0.2, 0.8]])
shapes = torch.linalg.eig(turn).eigenvectors.real
for step in range(80):
    x = torch.randn(16, 4)
    x_next = x @ turn.t()
    z, recon, z_pred = net(x)
    loss = nn.functional.mse_loss(recon, x) + nn.functional.mse_loss(z_pred, net.encoder(x_next))
    if step >= 40:
        values, vectors = net.modes()
        loss = loss + 0.1 * (values.abs() - 1).relu().sum() + nn.functional.l1_loss(vectors.real, shapes)
    opt.zero_grad()
    loss.backward()
    opt.step()
