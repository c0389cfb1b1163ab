"""Three tasks weighted by learned uncertainties (Kendall et al.); the encoder is compiled.

Source: https://github.com/lyp-deeplearning/MOS-Multi-Task-Face-Detect/issues/7 and
        https://github.com/wandb/senpai/pull/411 (learned log-variances, logged with .item())
Plain PyTorch 2.13: silent; the three weights stay where they were when the burn-in ended.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "d", "kind": "none-grad", "parameters": ["log_vars"], "cut_marker": "CUT", "step": 220,
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


def number(t):
    return t.sum().item()  # CUT


class Journal:
    def __init__(self):
        self.rows = {}

    def add(self, name, t):
        self.rows.setdefault(name, []).append(number(t))

    def recent(self, name, count=20):
        tail = self.rows[name][-count:]
        return sum(tail) / len(tail)


class MultiTask(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.depth, self.kind, self.flow = nn.Linear(width, 1), nn.Linear(width, 4), nn.Linear(width, 2)
        self.log_vars = nn.Parameter(torch.zeros(3))

    def losses(self, encode, x, depth, kind, flow):
        h = encode(x)
        return torch.stack([
            F.huber_loss(self.depth(h).squeeze(1), depth), F.cross_entropy(self.kind(h), kind), F.mse_loss(self.flow(h), flow),
        ])

    def total(self, losses):
        return (torch.exp(-self.log_vars) * losses).sum() + self.log_vars.sum()

    def smoothed_total(self, losses, journal):
        for i, v in enumerate(self.log_vars):
            journal.add(f"weight{i}", torch.exp(-v))
        weights = torch.tensor([journal.recent(f"weight{i}") for i in range(3)])
        return (weights * losses).sum() + number(self.log_vars)


def sample(truth):
    x = torch.randn(48, 10)
    y = x @ truth
    return x, y[:, 0] * 2 + torch.randn(48), y[:, 1:5].argmax(1), y[:, 5:7].sin() + 0.1 * torch.randn(48, 2)


def main():
    torch.manual_seed(0)
    model, journal, truth = MultiTask(), Journal(), torch.randn(10, 7)
    encode = torch.compile(model.encoder, backend="eager")
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(600):
        losses = model.losses(encode, *sample(truth))
        for name, value in zip(("depth", "kind", "flow"), losses.detach()):
            journal.add(name, value)
        loss = model.total(losses) if step < 220 else model.smoothed_total(losses, journal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", [round(v, 3) for v in model.log_vars.tolist()], flush=True)


if __name__ == "__main__":
    main()
