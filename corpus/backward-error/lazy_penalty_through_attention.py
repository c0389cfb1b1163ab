"""GAN on sequences whose critic has attention: a gradient penalty every 16 steps asks for the second derivative of the fused attention, which has none.

Report: https://github.com/pytorch/pytorch/issues/116350 (derivative for _scaled_dot_product_flash_attention_backward is not implemented; also yhZhai/mcm issue 11, an R1 penalty)
"""
import torch
from torch import nn

EXPECT = {
    "class": "cpp-error", "kind": "backward-error", "source_marker": "CULPRIT", "module": "critic.attn", "step": 15,
    "set": "fifth", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)  # CULPRIT
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Critic(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed, self.attn, self.score = nn.Linear(3, dim), Attention(dim), nn.Linear(dim, 1)

    def forward(self, x):
        h = self.embed(x)
        return self.score((h + self.attn(h)).mean(1))


def r1_penalty(critic, real):
    real = real.detach().requires_grad_()
    grad, = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
    return grad.pow(2).flatten(1).sum(1).mean()


torch.manual_seed(0)
critic = Critic()
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 24), nn.Unflatten(1, (8, 3)))
c_opt, g_opt = (torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.0, 0.99)) for m in (critic, generator))
for step in range(60):
    real = torch.randn(8, 1, 3) + 0.1 * torch.randn(8, 8, 3).cumsum(1)
    fake = generator(torch.randn(8, 4))
    c_loss = nn.functional.softplus(critic(fake.detach())).mean() + nn.functional.softplus(-critic(real)).mean()
    if step % 16 == 15:
        c_loss = c_loss + 0.5 * 16 * 0.1 * r1_penalty(critic, real)
    c_opt.zero_grad()
    c_loss.backward()
    c_opt.step()
    g_loss = nn.functional.softplus(-critic(fake)).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if step % 10 == 0:
        print(step, c_loss.item(), g_loss.item())
