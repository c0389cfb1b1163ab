"""Padding_idx=0 is given although id 0 is a real dish (the most ordered one) and no padding exists, so its embedding
row stays at zero and its ratings are never learned.

Report: ibalazevic/TuckER issue #17 (padding_idx=0 in the relation embedding silences the first real relation)
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "part-never-learns",
    "line": ("defined", "HERE"),
    "plain": "mse of dish 0 is 5.48 (others 0.013), overall 0.554; 0.014 and 0.0135 without padding_idx",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


GUESTS, DISHES, RANK = 150, 40, 8


class Orders:
    def __init__(self, seed):
        gen = torch.Generator().manual_seed(seed)
        self.guest = torch.randn(GUESTS, 4, generator=gen)
        self.dish = torch.randn(DISHES, 4, generator=gen)
        self.dish[0] *= 1.5
        share = 1.0 / (torch.arange(DISHES).float() + 4.0)
        self.share = share / share.sum()
        self.gen = gen

    def draw(self, n):
        g = torch.randint(0, GUESTS, (n,), generator=self.gen)
        d = torch.multinomial(self.share, n, replacement=True, generator=self.gen)
        y = (self.guest[g] * self.dish[d]).sum(1) + 0.1 * torch.randn(n, generator=self.gen)
        return g, d, y


class TasteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.guest = nn.Embedding(GUESTS, RANK)
        self.dish = nn.Embedding(DISHES, RANK, padding_idx=0)  # HERE
        self.dish_bias = nn.Embedding(DISHES, 1)
        with torch.no_grad():
            self.guest.weight.mul_(0.4)
            self.dish.weight.mul_(0.4)
            self.dish_bias.weight.zero_()

    def forward(self, guest, dish):
        return (self.guest(guest) * self.dish(dish)).sum(1) + self.dish_bias(dish).squeeze(1)


def fit(model, orders, steps=700, batch=256):
    groups = [{"params": [model.guest.weight, model.dish.weight], "weight_decay": 1e-5},
              {"params": [model.dish_bias.weight], "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(groups, lr=0.02)
    running = 0.0
    for step in range(steps):
        guest, dish, y = orders.draw(batch)
        optimizer.zero_grad()
        loss = F.mse_loss(model(guest, dish), y)
        loss.backward()
        optimizer.step()
        running += loss.item()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:4d} mse {running / 100:.4f}")
            running = 0.0


def report(model, orders):
    guest, dish, y = orders.draw(20000)
    with torch.no_grad():
        err = (model(guest, dish) - y).pow(2)
    for d in (0, 1, 2, 10):
        print(f"dish {d:2d} orders {(dish == d).sum().item():5d} mse {err[dish == d].mean().item():.4f}")
    print(f"final test mse {err.mean().item():.4f}")


def main():
    torch.manual_seed(55)
    orders = Orders(56)
    model = TasteModel()
    fit(model, orders)
    report(model, orders)


if __name__ == "__main__":
    main()
