"""Healthy: a VQ autoencoder whose codebook is an average in buffers, with dead codes revived."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Codebook(nn.Module):
    """Codes kept as buffers and moved by running averages, not by the optimizer."""

    def __init__(self, n_codes=32, dim=8, decay=0.95):
        super().__init__()
        self.decay = decay
        codes = torch.randn(n_codes, dim) * 0.5
        self.register_buffer("codes", codes)
        self.register_buffer("count", torch.ones(n_codes))
        self.register_buffer("total", codes.clone())

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        with torch.no_grad():
            pick = torch.cdist(flat, self.codes).argmin(1)
        q = self.codes[pick].view_as(z)
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(pick, len(self.codes)).float()
                self.count.lerp_(hot.sum(0), 1 - self.decay)
                self.total.lerp_(hot.T @ flat, 1 - self.decay)
                self.codes.copy_(self.total / self.count.clamp_min(1e-3)[:, None])
                dead = self.count < 0.05
                if dead.any():
                    fresh = flat[torch.randint(0, len(flat), (int(dead.sum()),))]
                    self.codes[dead] = fresh
                    self.total[dead] = fresh
                    self.count[dead] = 1.0
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, pick


class Loom(nn.Module):
    def __init__(self, slots=8, dim=8):
        super().__init__()
        self.slots, self.dim = slots, dim
        self.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, slots * dim))
        self.book = Codebook(dim=dim)
        self.dec = nn.Sequential(nn.Linear(slots * dim, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        z = self.enc(x).view(-1, self.slots, self.dim)
        q, commit, pick = self.book(z)
        return torch.sigmoid(self.dec(q.flatten(1))), commit, pick


def main():
    torch.manual_seed(17)
    x = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    train, test = x[:1500], x[1500:]
    model = Loom()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=200, T_mult=2, eta_min=1e-4)

    for step in range(600):
        batch = train[torch.randint(0, len(train), (128,))]
        out, commit, pick = model(batch)
        loss = F.mse_loss(out, batch) + 0.025 * commit
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 100 == 0 or step == 599:
            model.eval()
            with torch.no_grad():
                rec, _, used = model(test)
                mse = F.mse_loss(rec, test).item()
            model.train()
            print(f"step {step:4d}  loss {loss.item():.4f}  test mse {mse:.4f}  "
                  f"codes used {len(used.unique())}")
    print(f"pixel variance {test.var(0).mean().item():.4f}")


if __name__ == "__main__":
    main()
