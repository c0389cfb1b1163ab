"""A picture transformer with adapters, recomputed in the backward pass to save memory: in the second phase only adapters and head are to be tuned, stem and blocks are frozen, nothing that enters the first recomputed block needs a gradient any more and the adapters get none.

Report: https://github.com/huggingface/transformers/issues/21381 (freezing the first layers and gradient checkpointing: all gradient calculation is disabled, fix with use_reentrant=False); warning "None of the inputs have requires_grad=True. Gradients will be None"
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "late-silent", "framework": "checkpoint", "kind": "none-grad", "cut_marker": "CUT", "step": 30,
    "set": "eleventh", "written": "2026-11-23",
}


class Adapter(nn.Module):
    def __init__(self, width, rank=4):
        super().__init__()
        self.down, self.up = nn.Linear(width, rank), nn.Linear(rank, width)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.adapter = Adapter(width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return self.adapter(x + self.mlp(self.norm2(x)))


class SmallViT(nn.Module):
    def __init__(self, patch=12, tokens=9, width=32, depth=3, classes=4):
        super().__init__()
        self.stem = nn.Linear(patch, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, patches):
        x = self.stem(patches) + self.position
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)  # CUT
        return self.head(x.mean(1))


def freeze_all_but_adapters(model):
    for name, p in model.named_parameters():
        p.requires_grad_("adapter" in name or name.startswith("head"))


def batch_of(task, size=32):
    label = torch.randint(0, 4, (size,))
    return task[label] + torch.randn(size, 9, 12), label


torch.manual_seed(0)
model = SmallViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
general, special = torch.randn(4, 9, 12), torch.randn(4, 9, 12)
for step in range(70):
    if step == 30:
        freeze_all_but_adapters(model)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        model.zero_grad()
    patches, label = batch_of(general if step < 30 else special)
    loss = F.cross_entropy(model(patches), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
