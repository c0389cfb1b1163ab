"""Trains a two-tower rating model under accelerate; healthy: accumulation, schedule to zero and averaged weights swapped in and back out.
Report: none (what looks odd and is right: the optimizer steps every fourth batch, the last rate is zero, weights are overwritten and restored)
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "accelerate", "kind": None, "set": "twentieth", "written": "2026-11-27"}

USERS, FILMS, DIM, ACCUMULATE, EPOCHS = 120, 90, 12, 4, 6


def ratings(n=4096):
    taste, style = torch.randn(USERS, 4), torch.randn(FILMS, 4)
    u, f = torch.randint(0, USERS, (n,)), torch.randint(0, FILMS, (n,))
    score = 3.0 + 0.5 * (taste[u] * style[f]).sum(1) + 0.2 * torch.randn(n)
    return u, f, score


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.film = nn.Embedding(FILMS, DIM)
        self.user_bias = nn.Embedding(USERS, 1)
        self.film_bias = nn.Embedding(FILMS, 1)
        self.mean = nn.Parameter(torch.tensor(3.0))
        for table in (self.user, self.film):
            nn.init.normal_(table.weight, std=0.3)
        for table in (self.user_bias, self.film_bias):
            nn.init.zeros_(table.weight)

    def forward(self, u, f):
        return self.mean + self.user_bias(u).squeeze(1) + self.film_bias(f).squeeze(1) + (self.user(u) * self.film(f)).sum(1)


class Averaged:
    def __init__(self, model, decay=0.95):
        self.model, self.decay = model, decay
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self):
        for k, v in self.model.state_dict().items():
            self.weights[k].lerp_(v, 1 - self.decay)

    def __enter__(self):
        self.backup = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.weights)

    def __exit__(self, *exc):
        self.model.load_state_dict(self.backup)


def main():
    torch.manual_seed(7)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    u, f, score = ratings()
    loader = DataLoader(TensorDataset(u[:3584], f[:3584], score[:3584]), batch_size=32, shuffle=True)
    model = TwoTower()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    updates = EPOCHS * len(loader) // ACCUMULATE
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: max(0.0, 1 - k / updates))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    averaged = Averaged(model)
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for uu, ff, yy in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(uu, ff), yy)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                averaged.update()
            total += loss.item()
        model.eval()
        with averaged, torch.no_grad():
            held_out = nn.functional.mse_loss(model(u[3584:], f[3584:]), score[3584:]).item()
        print(f"epoch {epoch}: train {total / len(loader):.3f}  held out {held_out:.3f}  lr {scheduler.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    main()
