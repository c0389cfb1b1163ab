"""Routing of support tickets (bags of word ids) to desks, with accelerate and gradient accumulation.

After a promising start the loss lies flat for the larger part of the run.
Follows https://github.com/huggingface/accelerate/issues/963
"""
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import get_linear_schedule_with_warmup

EXPECT = {
    "kind": "learning-rate-zero",
    "line": ("stepped", "HERE"),
    "plain": "the loss stops falling early and the last epochs change nothing at all",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

WORDS = 400
DESKS = 12
LENGTH = 14


class Tickets(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        topics = np.random.default_rng(77).dirichlet(np.full(WORDS, 0.08), size=DESKS)
        self.y = rng.integers(0, DESKS, size=n)
        common = np.full(WORDS, 1.0 / WORDS)
        self.x = np.stack([rng.choice(WORDS, size=LENGTH, p=0.35 * topics[k] + 0.65 * common) for k in self.y])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.tensor(self.x[i]), int(self.y[i])


class Router(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.score = nn.Linear(width, 1)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, DESKS))

    def forward(self, ids):
        e = self.words(ids)
        a = torch.softmax(self.score(torch.tanh(e)), dim=1)
        return self.head((a * e).sum(1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    good = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return good / len(loader.dataset)


def main():
    set_seed(2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    epochs = 8
    train = DataLoader(Tickets(4000, 0), batch_size=16, shuffle=True)
    held = DataLoader(Tickets(1000, 1), batch_size=200)
    model = Router()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    updates = epochs * len(train) // accelerator.gradient_accumulation_steps
    model, optimizer, train, held = accelerator.prepare(model, optimizer, train, held)
    schedule = get_linear_schedule_with_warmup(optimizer.optimizer, updates // 20, updates)
    for epoch in range(epochs):
        total, count = 0.0, 0
        for x, y in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()  # HERE
            total += loss.item()
            count += 1
        accelerator.print(f"epoch {epoch} loss {total / count:.4f} held accuracy {accuracy(model, held):.3f}")


if __name__ == "__main__":
    main()
