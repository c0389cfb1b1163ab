"""A language model with experts keeps their load even by a bias, renewed from a count of the tokens that went to each; blocks are recomputed in the backward pass, and every token is counted a second time.

Report: https://github.com/pytorch/torchtitan/pull/1593 ("handle cases where tokens per expert are counted twice during full recompute")
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "silent-wrong", "framework": "checkpoint", "kind": "checkpoint-side-effect", "region_marker": "REGION",
    "set": "eleventh", "written": "2026-11-23",
}
VOCAB, LENGTH = 32, 16


class Experts(nn.Module):
    def __init__(self, width, experts=4):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)
        self.register_buffer("expert_bias", torch.zeros(experts))
        self.register_buffer("tokens_per_expert", torch.zeros(experts))

    def forward(self, x):
        score = self.router(x).sigmoid()
        chosen = (score + self.expert_bias).argmax(-1)
        with torch.no_grad():
            self.tokens_per_expert.add_(torch.bincount(chosen.flatten(), minlength=len(self.expert_bias)))
        every = torch.einsum("blw,ewh->bleh", x, self.up)
        every = torch.einsum("bleh,ehw->blew", F.silu(every), self.down)
        gate = F.one_hot(chosen, len(self.expert_bias)) * score
        return (every * gate[..., None]).sum(2)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.experts = nn.LayerNorm(width), Experts(width)
        self.past = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        x = x + self.past(x)[0]
        return x + self.experts(self.norm(x))


class SmallMoE(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # REGION
        return self.out(x)


@torch.no_grad()
def renew_bias(model, tokens, rate=1e-2):
    """Towards the share that every expert should have of the tokens that there were."""
    for block in model.blocks:
        experts = block.experts
        share = tokens / len(experts.expert_bias)
        experts.expert_bias += rate * torch.sign(share - experts.tokens_per_expert)
        load = experts.tokens_per_expert.clone()
        experts.tokens_per_expert.zero_()
    return load


torch.manual_seed(0)
model, follow = SmallMoE(), torch.randint(0, VOCAB, (VOCAB,))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(60):
    ids = [torch.randint(0, VOCAB, (16,))]
    for _ in range(LENGTH):
        ids.append(torch.where(torch.rand(16) < 0.1, torch.randint(0, VOCAB, (16,)), follow[ids[-1]]))
    ids = torch.stack(ids, 1)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    load = renew_bias(model, tokens=16 * LENGTH)
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} load {load.int().tolist()} of {16 * LENGTH} tokens")
