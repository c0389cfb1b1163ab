"""WGAN with gradient penalty. Suspicious at first sight: only opt_g is cleared before the generator's backward, which leaves
stale gradients in the critic, the penalty differentiates a gradient, and the fakes are detached for the critic. It is right:
the critic's gradients are cleared at the start of each of its own steps, so nothing stale is ever applied."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "healthy: gradient penalty and intended partial clear",
    "kind": "none",
    "what": "The generator step leaves gradients in the critic that critic.zero_grad() removes before they can be used; the detach and the second-order penalty are those of WGAN-GP.",
    "symptom": "the Wasserstein estimate falls and the fakes approach the data",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(25)
torch.set_num_threads(1)
CRITIC_STEPS, PENALTY, BATCH = 5, 10.0, 96


class Generator(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, n):
        return self.net(torch.randn(n, self.latent))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2),
                                 nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def real_batch(n):
    """A tilted, shifted Gaussian."""
    base = torch.randn(n, 2) * torch.tensor([1.0, 0.3])
    return base @ torch.tensor([[0.8, 0.6], [-0.6, 0.8]]) + torch.tensor([2.0, -1.0])


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    point = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    return (grad.norm(dim=1) - 1).pow(2).mean()


generator, critic = Generator(), Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.9))

for step in range(121):
    for _ in range(CRITIC_STEPS):
        critic.zero_grad()
        real, fake = real_batch(BATCH), generator(BATCH).detach()
        gap = critic(real).mean() - critic(fake).mean()
        critic_loss = -gap + PENALTY * gradient_penalty(critic, real, fake)
        critic_loss.backward()
        opt_c.step()

    opt_g.zero_grad()  # the critic keeps this loss's gradients until its next zero_grad
    generator_loss = -critic(generator(BATCH)).mean()
    generator_loss.backward()
    opt_g.step()

    if step % 20 == 0:
        with torch.no_grad():
            sample = generator(1000)
        mean, std = sample.mean(0).tolist(), sample.std(0).tolist()
        print(f"step {step:3d}  Wasserstein estimate {gap.item():.3f}  mean ({mean[0]:+.2f}, {mean[1]:+.2f})"
              f"  std ({std[0]:.2f}, {std[1]:.2f})")
print("wanted: mean (+2.00, -1.00)  std (0.82, 0.65)")
