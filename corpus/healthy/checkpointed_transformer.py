"""A transformer with activation checkpointing, tied embeddings and padding. Each block is run twice per step (once without a
graph), row 0 of the embedding is zero for ever and unused rows have no gradient. That is how checkpointing and a real padding
token work; the result is the same as without checkpointing and the loss goes down."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "healthy: gradient checkpointing, real padding",
    "kind": "none",
    "what": "The no-grad first pass and the recomputation are those of torch.utils.checkpoint; row 0 of the embedding is the padding token and rightly stays zero.",
    "symptom": "loss goes down; gradients equal those without checkpointing",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(27)
torch.set_num_threads(1)
PAD, VOCAB = 0, 30


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))

    def forward(self, x, padding):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Denoiser(nn.Module):
    """Restores masked tokens (token 1 is the mask)."""

    def __init__(self, dim=32, depth=3, use_checkpoint=True):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        with torch.no_grad():
            self.embed.weight.mul_(0.3)
        self.position = nn.Parameter(0.02 * torch.randn(1, 12, dim))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.use_checkpoint = use_checkpoint

    def forward(self, ids):
        padding = ids == PAD
        x = self.embed(ids) + self.position
        for block in self.blocks:
            if self.use_checkpoint and self.training:
                x = checkpoint(block, x, padding, use_reentrant=False)
            else:
                x = block(x, padding)
        return F.linear(self.norm(x), self.embed.weight[1:])  # tied; never predicts the padding


def make_batch(n=32, length=12):
    start = torch.randint(2, 27, (n, 1))
    ids = 2 + (start + torch.arange(length)) % 25  # ids 27 to 29 never occur
    size = torch.randint(5, length + 1, (n, 1))
    ids = torch.where(torch.arange(length) < size, ids, PAD)
    masked = (torch.rand(n, length) < 0.25) & (ids != PAD)
    return torch.where(masked, 1, ids), torch.where(masked, ids - 1, -100)


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
losses = []
for step in range(120):
    ids, labels = make_batch()
    logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 19:
        print(f"step {step + 1:3d}  loss {sum(losses[-20:]) / 20:.4f}  norm of the padding row"
              f" {model.embed.weight[PAD].norm().item():.3f}")
