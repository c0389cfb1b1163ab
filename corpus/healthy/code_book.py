"""Trains an autoencoder with discrete codes: the gradient is passed straight through the quantisation and the code book is a buffer that follows the encoder. Nothing goes wrong."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "eighteenth", "written": "2026-11-27"}


class PassThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, q):
        return q.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CodeBook(nn.Module):
    def __init__(self, codes, dim, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("table", torch.randn(codes, dim) * 0.3)
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.table.clone())

    def forward(self, z):
        flat = z.reshape(-1, self.table.shape[1])
        nearest = torch.cdist(flat.detach(), self.table).argmin(1)
        q = self.table[nearest].reshape(z.shape)
        if self.training:
            self.follow(flat.detach(), nearest)
        commit = F.mse_loss(z, q)
        return PassThrough.apply(z, q), commit, nearest

    @torch.no_grad()
    def follow(self, flat, nearest):
        hot = F.one_hot(nearest, len(self.table)).float()
        self.count.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
        self.total.mul_(self.decay).add_(hot.T @ flat, alpha=1 - self.decay)
        self.table.copy_(self.total / self.count.clamp(min=1e-2)[:, None])


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
        self.book = CodeBook(32, 4)
        self.dec = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x):
        z = self.enc(x).reshape(len(x), 8, 4)
        q, commit, codes = self.book(z)
        return self.dec(q.flatten(1)), commit, codes


def main():
    torch.manual_seed(0)
    x = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    model = Autoencoder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(300):
        batch = x[torch.randint(0, 1500, (64,))]
        rec, commit, codes = model(batch)
        loss = F.mse_loss(rec, batch) + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 60 == 0:
            model.eval()
            with torch.no_grad():
                val = F.mse_loss(model(x[1500:])[0], x[1500:]).item()
            model.train()
            print(f"step {step + 1} loss {loss.item():.4f} val {val:.4f} codes in use {codes.unique().numel()}")


if __name__ == "__main__":
    main()
