"""Autoencoder with an adversarial term that starts later, its weight is balanced by gradients of the last layer; the compiled decoder refuses retain_graph.

Report: https://github.com/bytetriper/RAE/issues/74
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "kind": "backward-error", "source_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


def adaptive_weight(recon, adversarial, layer):
    a = torch.autograd.grad(recon, layer, retain_graph=True)[0]
    b = torch.autograd.grad(adversarial, layer, retain_graph=True)[0]
    return (a.norm() / (b.norm() + 1e-4)).clamp(0, 1e4).detach()


torch.manual_seed(0)
decoder = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 12))
critic = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
compiled = torch.compile(decoder, backend="aot_eager")
opt_g = torch.optim.Adam(decoder.parameters(), 1e-3)
opt_d = torch.optim.Adam(critic.parameters(), 1e-3)
for step in range(50):
    real = torch.randn(8, 12)
    fake = compiled(real[:, :4])  # CULPRIT
    loss = nn.functional.mse_loss(fake, real)
    if step >= 30:  # gan_start
        adversarial = -critic(fake).mean()
        loss = loss + adaptive_weight(loss, adversarial, decoder[2].weight) * adversarial
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()
    d_loss = critic(fake.detach()).relu().mean() + (1 - critic(real)).relu().mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
