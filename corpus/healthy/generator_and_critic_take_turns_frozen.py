"""GAN that freezes the critic for the generator's step and thaws it for its own, in whose forward the generator runs
without gradients. A loss that has no term in some steps is skipped. Healthy.
"""
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "none", "set": "ledger", "written": "2026-11-27",
}
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), 1e-3)
optimizer_c = torch.optim.Adam(critic.parameters(), 1e-3)
for step in range(200):
    critic.requires_grad_(True)
    with torch.no_grad():
        fake = generator(torch.randn(16, 4))
    loss = (critic(fake) - critic(torch.randn(16, 2))).mean() + 0.1 * critic(fake).square().mean()
    optimizer_c.zero_grad()
    loss.backward()
    optimizer_c.step()
    critic.requires_grad_(False)
    fake = generator(torch.randn(16, 4))
    chosen = fake[fake[:, 0] > 0.2] if step % 3 == 0 else fake
    loss = -critic(chosen).mean() if len(chosen) else torch.zeros(())
    if loss.requires_grad:
        optimizer_g.zero_grad()
        loss.backward()
        optimizer_g.step()
