"""Click prediction with a frozen item table from another model, gradient accumulation through accelerate, stopped half-way and resumed from a complete checkpoint. Healthy."""
import os
import tempfile

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "accelerate", "kind": None, "set": "nineteenth", "written": "2026-11-27"}

USERS, ITEMS, DIM, ACCUM, EPOCHS = 80, 60, 8, 2, 10


def make_clicks():
    gen = torch.Generator().manual_seed(0)
    items = torch.randn(ITEMS, DIM, generator=gen)
    taste = torch.randn(USERS, DIM, generator=gen)
    u = torch.randint(0, USERS, (6000,), generator=gen)
    i = torch.randint(0, ITEMS, (6000,), generator=gen)
    logit = (taste[u] * items[i]).sum(1)
    y = (torch.rand(6000, generator=gen) < torch.sigmoid(logit)).float()
    return items, u, i, y


class ClickModel(nn.Module):
    def __init__(self, item_vectors):
        super().__init__()
        self.items = nn.Embedding.from_pretrained(item_vectors, freeze=True)
        self.users = nn.Embedding(USERS, DIM)
        nn.init.normal_(self.users.weight, std=0.1)
        self.top = nn.Sequential(nn.Linear(2 * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, u, i):
        eu, ei = self.users(u), self.items(i)
        return (eu * ei).sum(-1) + self.top(torch.cat([eu, ei], dim=1)).squeeze(-1)


def train(folder, first, last):
    torch.manual_seed(first)
    items, u, i, y = make_clicks()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUM)
    loader = DataLoader(TensorDataset(u[:4800], i[:4800], y[:4800]), batch_size=120, shuffle=True)
    model = ClickModel(items)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.02, weight_decay=1e-3)
    total = EPOCHS * len(loader) // ACCUM
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / total))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if first > 0:
        accelerator.load_state(folder)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(first, last):
        model.train()
        seen = 0.0
        for bu, bi, by in loader:
            with accelerator.accumulate(model):
                loss = criterion(model(bu, bi), by)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            seen += loss.item()
        model.eval()
        with torch.no_grad():
            test = model(u[4800:], i[4800:])
            acc = ((test > 0).float() == y[4800:]).float().mean().item()
        print(f"epoch {epoch + 1:2d}  loss {seen / len(loader):.4f}  test acc {acc:.3f}  lr {scheduler.get_last_lr()[0]:.4f}")
    accelerator.save_state(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        where = os.path.join(tmp, "state")
        train(where, 0, 5)
        print("resuming")
        train(where, 5, EPOCHS)
