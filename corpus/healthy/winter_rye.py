"""Accelerate: accumulation over three batches, a tied embedding, and a layer that is thawed in mid-run."""

from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}


CONTEXT = 48


class Text(Dataset):
    def __init__(self, ids, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = ids
        self.starts = torch.randint(0, len(ids) - CONTEXT - 1, (n,), generator=g)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = int(self.starts[i])
        chunk = self.ids[s : s + CONTEXT + 1]
        return chunk[:-1], chunk[1:]


class RyeModel(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.rnn = nn.GRU(dim, 128, batch_first=True)
        self.down = nn.Linear(128, dim)
        self.out = nn.Linear(dim, vocab)
        self.out.weight = self.embed.weight

    def forward(self, x):
        h, _ = self.rnn(self.embed(x))
        return self.out(self.down(h))


def build_optimizer(model):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
        lr=4e-3,
    )


@torch.no_grad()
def perplexity(model, loader):
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        logits = model(x)
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    model.train()
    return torch.tensor(total / count).exp().item()


def main():
    torch.manual_seed(81)
    text = " ".join(topics[k] for k in sorted(topics))[:120000].lower()
    chars = sorted(set(text))
    table = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([table[c] for c in text])
    cut = int(0.9 * len(ids))

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = RyeModel(len(chars))
    for p in model.down.parameters():
        p.requires_grad_(False)
    optimizer = build_optimizer(model)
    train = DataLoader(Text(ids[:cut], 16 * 800, 1), batch_size=16, shuffle=True)
    held = DataLoader(Text(ids[cut:], 200, 2), batch_size=100)
    updates = (len(train) + 2) // 3
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda u: min(1.0, (u + 1) / 20) * max(0.05, 1 - u / updates)
    )
    model, optimizer, train, held = accelerator.prepare(model, optimizer, train, held)

    done, running = 0, []
    for x, y in train:
        with accelerator.accumulate(model):
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        running.append(loss.item())
        if accelerator.sync_gradients:
            schedule.step()
            done += 1
            if done == 60:
                for p in accelerator.unwrap_model(model).down.parameters():
                    p.requires_grad_(True)
            if done % 30 == 0:
                print(f"update {done:3d} lr {schedule.get_last_lr()[0]:.5f} loss {sum(running) / len(running):.3f} "
                      f"held-out perplexity {perplexity(model, held):.2f}")
                running.clear()


if __name__ == "__main__":
    main()
