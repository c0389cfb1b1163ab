"""A GAN on two moons. Both halves of the loop were copied from one another, and the generator's half still clips the
discriminator, whose gradients are cleared before they are used. The generator is never clipped."""
import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn

EXPECT = {
    "class": "clipping of another model",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)

generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
points = torch.tensor(make_moons(1000, noise=0.05, random_state=0)[0], dtype=torch.float32)

for step in range(120):
    real = points[torch.randint(0, len(points), (64,))]
    fake = generator(torch.randn(64, 4))
    opt_d.zero_grad()
    loss_d = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
    loss_d.backward()
    nn.utils.clip_grad_norm_(discriminator.parameters(), 0.1)
    opt_d.step()

    opt_g.zero_grad()
    loss_g = F.softplus(-discriminator(fake)).mean()
    loss_g.backward()
    nn.utils.clip_grad_norm_(discriminator.parameters(), 0.1)  # <-- cause
    opt_g.step()
    if step % 40 == 0:
        print(f"step {step}  D {loss_d.item():.3f}  G {loss_g.item():.3f}")
