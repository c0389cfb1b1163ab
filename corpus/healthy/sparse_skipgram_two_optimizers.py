"""Skip-gram with negative sampling: sparse embeddings (SparseAdam) and a dense head (Adam).

Right because: sparse=True gives sparse gradients which only SparseAdam takes; rows of words
that are not in the batch do not change, the padding row never does; the output table starts
at zero as in word2vec (thus the input table's gradient is zero in the very first step); a
dense part-of-vocabulary classifier uses the same table through Adam.
"""
import re
from collections import Counter
from pydoc_data import topics

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

PAD = 0


class SkipGram(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.inp = nn.Embedding(vocab, dim, padding_idx=PAD, sparse=True)
        self.out = nn.Embedding(vocab, dim, padding_idx=PAD, sparse=True)
        nn.init.uniform_(self.inp.weight, -0.5, 0.5)
        nn.init.zeros_(self.out.weight)
        with torch.no_grad():
            self.inp.weight[PAD] = 0
        self.frequency = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, contexts, targets, negatives):
        vec = self.inp(contexts)                                  # batch, window, dim (padded)
        n = (contexts != PAD).sum(1, keepdim=True).clamp(min=1)
        mean = vec.sum(1) / n
        pos = (mean * self.out(targets)).sum(-1)
        neg = torch.einsum("bd,bkd->bk", mean, self.out(negatives))
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()

    def log_frequency(self, words):
        return self.frequency(self.inp(words)).squeeze(-1)


def corpus():
    words = re.findall(r"[a-z]+", " ".join(topics.topics.values()).lower())[:40_000]
    counts = Counter(words)
    keep = [w for w, c in counts.most_common(1200)]
    index = {w: i + 1 for i, w in enumerate(keep)}
    ids = torch.tensor([index[w] for w in words if w in index])
    freq = torch.tensor([1.0] + [float(counts[w]) for w in keep])
    return ids, freq, index


def contexts_of(ids, at, radius, gen):
    """Windows of random radius; shorter ones are padded."""
    offs = torch.tensor([o for o in range(-radius, radius + 1) if o != 0])
    ctx = ids[at[:, None] + offs]
    r = torch.randint(1, radius + 1, (len(at), 1), generator=gen)
    return ctx.masked_fill(offs.abs()[None] > r, PAD)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    ids, freq, index = corpus()
    noise = freq.pow(0.75)
    noise[PAD] = 0
    target_freq = (freq.log() - freq[1:].log().mean()) / freq[1:].log().std()
    net = SkipGram(len(freq), 32)
    sparse = torch.optim.SparseAdam([net.inp.weight, net.out.weight], lr=5e-3)
    dense = torch.optim.Adam(net.frequency.parameters(), lr=3e-3)
    history = []
    for step in range(700):
        at = torch.randint(5, len(ids) - 5, (128,), generator=gen)
        neg = torch.multinomial(noise, 128 * 5, replacement=True, generator=gen).view(128, 5)
        loss = net(contexts_of(ids, at, 4, gen), ids[at], neg)
        words = torch.randint(1, len(freq), (64,), generator=gen)
        aux = F.mse_loss(net.log_frequency(words), target_freq[words])
        sparse.zero_grad()
        dense.zero_grad()
        (loss + 0.2 * aux).backward()
        sparse.step()
        dense.step()
        history.append((loss.item(), aux.item()))
        if step % 100 == 99:
            a, b = torch.tensor(history[-100:]).mean(0).tolist()
            print(f"step {step} nce {a:.3f} frequency mse {b:.3f}")
    assert net.inp.weight[PAD].abs().sum() == 0
    with torch.no_grad():
        w = F.normalize(net.inp.weight[1:], dim=1)
        near = (w @ w[index["class"] - 1]).topk(5).indices + 1
        names = {i: n for n, i in index.items()}
        print("near 'class':", [names[i] for i in near.tolist()])


if __name__ == "__main__":
    main()
