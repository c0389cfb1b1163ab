"""Tiny GPT on a synthetic arithmetic language with an attention entropy bonus."""
import math
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 150,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(2)
VOCAB, T, B = 20, 32, 16


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))
        self.track_entropy = False
        self.entropy = None

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        att = att.masked_fill(self.mask[:t, :t], float("-inf")).softmax(-1)
        if self.track_entropy:
            self.entropy = -(att * torch.log(att)).sum(-1).mean()  # CULPRIT
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, dim=96, depth=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(T, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, idx):
        x = self.tok(idx) + self.pos[: idx.shape[1]]
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.ln(x))


def get_batch():
    a = torch.randint(0, VOCAB, (B, 1))
    d = torch.randint(1, 7, (B, 1))
    seq = (a + d * torch.arange(T + 1)) % VOCAB
    return seq[:, :-1], seq[:, 1:]


def train(steps=400, entropy_after=150, beta=1e-3):
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    t0 = time.time()
    for step in range(steps):
        if step == entropy_after:
            model.blocks[0].attn.track_entropy = True
        xb, yb = get_batch()
        logits = model(xb)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), yb.reshape(-1))
        for blk in model.blocks:
            if blk.attn.entropy is not None:
                loss = loss - beta * blk.attn.entropy
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 49:
            print(step, round(loss.item(), 4), f"{(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")
    return model


if __name__ == "__main__":
    train()
