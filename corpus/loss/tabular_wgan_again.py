"""Trains a WGAN-GP on a correlated tabular data set; the gradient penalty is computed but contributes no gradient to the
critic, so its input-gradient norm is never pulled to 1 (it grows to several times that; with create_graph=True it stays
close to 1) and the critic's scores run away.

Report: https://github.com/ooples/AiDotNet/issues/1844 (the penalty VALUE is computed with createGraph=false and does not
reach the discriminator's weights, the critic trains on the Wasserstein term alone)
"""
import numpy as np
import torch
from torch import nn, autograd

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "The gradient penalty is built without create_graph=True, so it is a constant for autograd and the critic is trained without any Lipschitz penalty.",
    "set": "twentysecond", "written": "2026-11-28",
}

torch.manual_seed(11)
rng = np.random.default_rng(11)
LATENT, COLS, LAMBDA, N_CRITIC, BATCH = 8, 6, 10.0, 4, 128


def make_table(n=4000):
    base = rng.normal(size=(n, 2))
    group = rng.integers(0, 2, size=(n, 1))
    cols = np.concatenate([base, base[:, :1] * 0.8 + 0.3 * rng.normal(size=(n, 1)), np.abs(base[:, 1:]),
                           group * 2.0 - 1 + 0.1 * rng.normal(size=(n, 1)), base.sum(1, keepdims=True)], axis=1)
    return torch.tensor((cols - cols.mean(0)) / cols.std(0), dtype=torch.float32)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, o))


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mixed)
    grads = autograd.grad(outputs=score, inputs=mixed, grad_outputs=torch.ones_like(score), retain_graph=True)[0]  # CAUSE
    norm = grads.norm(2, dim=1)
    return ((norm - 1) ** 2).mean(), norm.mean().item()


data = make_table()
gen, critic = mlp(LATENT, COLS), mlp(COLS, 1)
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

for it in range(75):
    for _ in range(N_CRITIC):
        real = data[torch.randint(len(data), (BATCH,))]
        with torch.no_grad():
            fake = gen(torch.randn(BATCH, LATENT))
        gp, norm = gradient_penalty(critic, real, fake)
        w_dist = critic(real).mean() - critic(fake).mean()
        c_loss = -w_dist + LAMBDA * gp
        opt_c.zero_grad()
        c_loss.backward()
        opt_c.step()

    g_loss = -critic(gen(torch.randn(BATCH, LATENT))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if it % 15 == 0 or it == 74:
        print(f"iter {it:3d}  W {w_dist.item():7.3f}  gp {gp.item():8.3f}  |grad| {norm:.3f}  g {g_loss.item():.3f}")

with torch.no_grad():
    sample = gen(torch.randn(2000, LATENT))
gap = (torch.corrcoef(sample.T) - torch.corrcoef(data.T)).abs().mean()
print(f"correlation gap {gap:.3f}, std of columns {sample.std(0).numpy().round(2)}")
