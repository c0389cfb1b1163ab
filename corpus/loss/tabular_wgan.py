"""WGAN-GP for a table of correlated numbers; the gradient penalty is computed but never constrains the critic.

Report: https://github.com/ooples/AiDotNet/issues/1844 (the penalty value is computed, but without create_graph its
gradient does not reach the critic's weights, the critic trains on the Wasserstein term alone)

Without create_graph the penalty is a constant for the weights. It grows to hundreds of thousands (slopes far above 1)
and the moments of the generated table stay further away (0.7 to 3); with create_graph it stays below 0.1 and the gap
shrinks to about 0.5.
"""
import torch
from torch import autograd, nn

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "autograd.grad is called without create_graph=True, so the gradient penalty is a constant for the critic's weights and never limits its slope; pass create_graph=True.",
    "set": "twentieth", "written": "2026-11-27",
}

DIM, NOISE, BATCH, N_CRITIC, LAMBDA = 5, 8, 128, 3, 10.0


def real_table(n):
    age = torch.randn(n)
    income = 0.8 * age + 0.4 * torch.randn(n)
    owner = (income > 0).float() * 2 - 1
    debt = -0.6 * income + 0.5 * torch.randn(n)
    region = torch.randint(0, 3, (n,)).float() - 1
    return torch.stack([age, income, owner, debt, region], 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(NOISE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, DIM))

    def forward(self, n):
        return self.net(torch.randn(n, NOISE))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                                 nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    grads = autograd.grad(scores, mixed, grad_outputs=torch.ones_like(scores))[0]  # CAUSE
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def moment_gap(gen):
    with torch.no_grad():
        fake, real = gen(2000), real_table(2000)
    return (torch.cov(fake.T) - torch.cov(real.T)).abs().mean().item() + (fake.mean(0) - real.mean(0)).abs().mean().item()


def train(iterations=80):
    gen, critic = Generator(), Critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.9))
    for it in range(iterations):
        for _ in range(N_CRITIC):
            real = real_table(BATCH)
            fake = gen(BATCH).detach()
            gp = gradient_penalty(critic, real, fake)
            loss_c = critic(fake).mean() - critic(real).mean() + LAMBDA * gp
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(gen(BATCH)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if it % 10 == 9:
            print(f"iter {it + 1} critic {loss_c.item():.2f} penalty {gp.item():.2f} gap {moment_gap(gen):.3f}")


if __name__ == "__main__":
    torch.manual_seed(11)
    train()
