"""Accelerate gradient accumulation over variable-length sequences, last window partial.

Right because: padding is masked with -inf by masked_fill_ on a fresh score tensor and rows
which would be all masked never occur (every sequence keeps its first token); the pooled
log-ratio uses the double-where trick, so no NaN reaches the backward; accelerate steps the
optimizer each 4 micro batches and also on the last, shorter window of each epoch.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Bags(Dataset):
    """Sequences of feature vectors; the target is a nonlinear function of two marked items."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(2, 11, (1,), generator=g))
            seq = torch.randn(length, 6, generator=g)
            marks = torch.zeros(length, 1)
            marks[torch.randperm(length, generator=g)[:2]] = 1.0
            target = (seq * marks)[:, :3].sum() * 0.6
            self.items.append((torch.cat([seq, marks], 1), target))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    seqs, targets = zip(*batch)
    lengths = torch.tensor([len(s) for s in seqs])
    x = pad_sequence(seqs, batch_first=True)
    pad = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
    return x, pad, torch.stack(targets)


def safe_log(x):
    """log(x) for x > 0, else 0 - with a gradient that is finite on both sides."""
    ok = x > 1e-6
    return torch.where(ok, torch.where(ok, x, torch.ones_like(x)).log(), torch.zeros_like(x))


class SetNet(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.inp, self.qkv, self.out = nn.Linear(7, d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Sequential(nn.Linear(2 * d, d), nn.GELU(), nn.Linear(d, 1))

    def forward(self, x, pad):
        h = self.inp(x)
        q, k, v = self.qkv(h).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        scores.masked_fill_(pad[:, None, :], float("-inf"))
        h = self.norm(h + self.out(scores.softmax(-1) @ v))
        h = h.masked_fill(pad[..., None], 0.0)
        pooled = h.sum(1)
        magnitude = safe_log(h.relu().sum(1))
        return self.head(torch.cat([pooled, magnitude], 1)).squeeze(1)


def main():
    acc = Accelerator(cpu=True, gradient_accumulation_steps=4)
    torch.manual_seed(0)
    net = SetNet()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    loader = DataLoader(Bags(680, 0), batch_size=16, shuffle=True, collate_fn=collate)
    test = DataLoader(Bags(200, 1), batch_size=100, collate_fn=collate)
    epochs = 14
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=6e-3, total_steps=epochs * 11 + 1)
    net, opt, loader, test, sched = acc.prepare(net, opt, loader, test, sched)
    for epoch in range(epochs):
        net.train()
        total = count = 0
        for x, pad, y in loader:
            with acc.accumulate(net):
                loss = F.mse_loss(net(x, pad), y)
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(net.parameters(), 2.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            total, count = total + loss.item() * len(y), count + len(y)
        net.eval()
        with torch.inference_mode():
            err = sum(F.mse_loss(net(x, pad), y).item() for x, pad, y in test) / len(test)
        acc.print(f"epoch {epoch} train {total / count:.4f} test {err:.4f}")


if __name__ == "__main__":
    main()
