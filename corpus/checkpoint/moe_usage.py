"""Mixture of experts with auxiliary-loss-free balancing; the usage counters are twice what was routed.

Source: https://github.com/pytorch/torchtitan/pull/1593 (same: https://github.com/NVIDIA-NeMo/Automodel/pull/3247)
"""
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "j", "kind": "checkpoint-side-effect", "region_marker": "REGION",
    "buffers": ["blocks.0.moe.tokens_per_expert", "blocks.1.moe.tokens_per_expert"], "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class MoE(nn.Module):
    def __init__(self, dim, n_experts=4):
        super().__init__()
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
                                     for _ in range(n_experts))
        self.register_buffer("expert_bias", torch.zeros(n_experts))
        self.register_buffer("tokens_per_expert", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.router(x))
        choice = (scores.detach() + self.expert_bias).argmax(-1)
        gate = scores.gather(-1, choice.unsqueeze(-1))
        if self.training:
            with torch.no_grad():
                self.tokens_per_expert += torch.bincount(choice.flatten(), minlength=len(self.experts))
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            mask = (choice == e).unsqueeze(-1)
            out = out + torch.where(mask, expert(x), torch.zeros_like(x))
        return gate * out

    @torch.no_grad()
    def update_bias(self, rate=1e-2):
        load = self.tokens_per_expert
        self.expert_bias += rate * torch.sign(load.mean() - load)
        total = load.sum().item()
        load.zero_()
        return total


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.moe = nn.LayerNorm(dim), MoE(dim)

    def forward(self, x):
        return x + self.moe(self.norm(x))


class Model(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.inp, self.out = nn.Linear(6, dim), nn.Linear(dim, 1)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)  # REGION
        return self.out(h)


def main():
    torch.manual_seed(0)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(100):
        x = torch.randn(32, 8, 6)
        target = torch.where(x[..., :1] > 0, x[..., 1:2] * x[..., 2:3], x[..., 3:4].sin())
        loss = F.mse_loss(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        routed = [b.moe.update_bias() for b in model.blocks]
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} routed {routed} of {x.shape[0] * x.shape[1]} tokens")


if __name__ == "__main__":
    main()
