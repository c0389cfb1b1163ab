"""Accelerate: tied weights, frozen positions, accumulation of gradients, and warm restarts."""

import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from pydoc_data.topics import topics
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}


SPAN = 48


def gather_text(limit=120_000):
    text = "\n".join(topics[k] for k in sorted(topics))[:limit]
    letters = sorted(set(text))
    table = {c: i for i, c in enumerate(letters)}
    return torch.tensor([table[c] for c in text]), len(letters)


class Passages(Dataset):
    def __init__(self, codes, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.codes = codes
        self.starts = torch.randint(len(codes) - SPAN - 1, (count,), generator=g)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        return self.codes[s:s + SPAN], self.codes[s + 1:s + SPAN + 1]


def wave_table(length, dim):
    t = torch.arange(length).unsqueeze(1)
    f = torch.exp(-math.log(1000.0) * torch.arange(0, dim, 2) / dim)
    return torch.cat([torch.sin(t * f), torch.cos(t * f)], 1)


class Scribe(nn.Module):
    def __init__(self, letters, dim=64):
        super().__init__()
        self.embed = nn.Embedding(letters, dim)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.place = nn.Embedding.from_pretrained(0.05 * wave_table(SPAN, dim), freeze=True)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, letters)
        self.read.weight = self.embed.weight

    def forward(self, codes):
        n = codes.shape[1]
        h = self.embed(codes) + self.place(torch.arange(n, device=codes.device))
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool, device=codes.device), 1)
        return self.read(self.norm(self.blocks(h, mask=mask)))


def groups(model, decay):
    wide = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    thin = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    return [{"params": wide, "weight_decay": decay}, {"params": thin, "weight_decay": 0.0}]


@torch.no_grad()
def appraise(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x).transpose(1, 2), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(31)
    codes, letters = gather_text()
    cut = int(0.9 * len(codes))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Scribe(letters)
    opt = torch.optim.AdamW(groups(model, 0.01), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=70, T_mult=2, eta_min=1e-4)
    loader = DataLoader(Passages(codes[:cut], 16 * 420, 1), batch_size=16, shuffle=True)
    held = DataLoader(Passages(codes[cut:], 160, 2), batch_size=80)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
    print(f"letters {letters}  untrained {appraise(model, held):.3f}")
    for turn, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x).transpose(1, 2), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        if turn % 70 == 69:
            rate = opt.param_groups[0]["lr"]
            print(f"batch {turn + 1:4d}  loss {loss.item():.3f}  rate {rate:.5f}  held out {appraise(model, held):.3f}")


if __name__ == "__main__":
    main()
