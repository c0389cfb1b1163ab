"""Character LM with ReZero gates, tied embedding/output weights and two kinds of checkpointing.

Right because: gates start at 0, so the branch weights get an exactly zero gradient in the
first step only; the tied matrix appears once in the optimizer; the reentrant checkpoint gets
an input which requires grad (it is the output of the embedding), and both kinds preserve the
RNG state so that dropout is the same in the recomputation; autocast (bf16) is on in the loop.
"""
from pydoc_data import topics

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

CONTEXT = 32


class Mixer(nn.Module):
    """Causal depthwise convolution over time and a feed-forward part, each behind a gate."""

    def __init__(self, d, width=8):
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(d, d, width, groups=4)
        self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)
        self.drop = nn.Dropout(0.1)
        self.gate_time, self.gate_ff = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        t = F.pad(x.transpose(1, 2), (self.width - 1, 0))
        x = x + self.gate_time * self.drop(F.silu(self.conv(t)).transpose(1, 2))
        return x + self.gate_ff * self.drop(self.down(F.silu(self.up(x))))


class LM(nn.Module):
    def __init__(self, vocab, d=48, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        nn.init.normal_(self.embed.weight, std=d ** -0.5)
        self.layers = nn.ModuleList(Mixer(d) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, vocab)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        h = self.embed(ids)
        for i, layer in enumerate(self.layers):
            if self.training:
                h = checkpoint(layer, h, use_reentrant=i % 2 == 0)
            else:
                h = layer(h)
        return self.out(self.norm(h))


def batches(ids, size, gen):
    while True:
        at = torch.randint(0, len(ids) - CONTEXT - 1, (size,), generator=gen)
        window = torch.stack([ids[i:i + CONTEXT + 1] for i in at.tolist()])
        yield window[:, :-1], window[:, 1:]


def loss_of(net, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def main():
    torch.manual_seed(0)
    text = "\n".join(topics.topics.values())[:200_000]
    chars = sorted(set(text))
    ids = torch.tensor([chars.index(c) for c in text])
    train, held = ids[:180_000], ids[180_000:]
    gen = torch.Generator().manual_seed(5)
    net = LM(len(chars))
    gates = [p for n, p in net.named_parameters() if "gate" in n]
    rest = [p for n, p in net.named_parameters() if "gate" not in n]
    opt = torch.optim.AdamW([{"params": rest, "lr": 3e-3}, {"params": gates, "lr": 1e-2, "weight_decay": 0.0}])
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2)
    stream, check = batches(train, 24, gen), next(batches(held, 128, gen))
    for step in range(300):
        loss = loss_of(net, *next(stream))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 49:
            net.eval()
            with torch.inference_mode():
                print(f"step {step} train {loss.item():.3f} held {loss_of(net, *check).item():.3f} "
                      f"gates {[round(g.item(), 2) for g in gates]}")
            net.train()


if __name__ == "__main__":
    main()
