"""Readers' ratings of books: biased matrix factorisation, trained with accelerate and accumulated gradients.

Follows the public report https://github.com/huggingface/accelerate/issues/963
"""
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "learning-rate-zero",
    "line": ("stepped", "cause"),
    "plain": "the error falls for about one epoch and then stands still for the rest; the printed rate is 0",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

READERS, BOOKS, ACCUMULATE, EPOCHS = 200, 120, 8, 10


def ratings(seed):
    rng = np.random.default_rng(seed)
    taste, style = rng.normal(size=(READERS, 3)), rng.normal(size=(BOOKS, 3))
    mood, fame = rng.normal(0, 0.4, READERS), rng.normal(0, 0.5, BOOKS)
    who, what = rng.integers(0, READERS, 12000), rng.integers(0, BOOKS, 12000)
    stars = 3.2 + mood[who] + fame[what] + 0.6 * (taste[who] * style[what]).sum(1) + rng.normal(0, 0.2, 12000)
    rows = TensorDataset(torch.from_numpy(who), torch.from_numpy(what), torch.tensor(stars, dtype=torch.float32))
    return torch.utils.data.random_split(rows, [10240, 1760], generator=torch.Generator().manual_seed(seed))


class Factors(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.reader, self.book = nn.Embedding(READERS, width), nn.Embedding(BOOKS, width)
        self.reader_bias, self.book_bias = nn.Embedding(READERS, 1), nn.Embedding(BOOKS, 1)
        self.level = nn.Parameter(torch.tensor(3.0))
        for table in (self.reader, self.book):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.reader_bias, self.book_bias):
            nn.init.zeros_(table.weight)

    def forward(self, who, what):
        match = (self.reader(who) * self.book(what)).sum(-1)
        return self.level + match + self.reader_bias(who).squeeze(-1) + self.book_bias(what).squeeze(-1)


def half_cosine(total, warm):
    def factor(step):
        if step < warm:
            return (step + 1) / warm
        if step >= total:
            return 0.0
        return 0.5 * (1.0 + float(np.cos(np.pi * (step - warm) / (total - warm))))
    return factor


@torch.no_grad()
def error(model, loader):
    model.eval()
    squares = [(model(who, what) - stars) ** 2 for who, what, stars in loader]
    return torch.cat(squares).mean().sqrt().item()


def main():
    set_seed(3)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    train_rows, test_rows = ratings(3)
    train_loader = DataLoader(train_rows, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_rows, batch_size=880)
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    updates = EPOCHS * len(train_loader) // ACCUMULATE
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, half_cosine(updates, warm=10))
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)  # <-- cause
    criterion = nn.MSELoss()

    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for who, what, stars in train_loader:
            with accelerator.accumulate(model):
                loss = criterion(model(who, what), stars)
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()  # <-- cause
                optimizer.zero_grad()
            total += loss.item()
        rate = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch}: rate {rate:.5f}  loss {total / len(train_loader):.4f}  "
              f"held-out error {error(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
