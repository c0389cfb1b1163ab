"""A recurrent state-space model of digit rows: states are drawn with rsample(), and rows imagined with sample() are shown."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29", "what": "sample() is right for what is only shown, and for inputs that are detached"}
STATES, HIDDEN, ROW = 4, 24, 8


def gaussian(numbers):
    mean, raw = numbers.chunk(2, -1)
    return Independent(Normal(mean, nn.functional.softplus(raw) + 0.05), 1)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(STATES, HIDDEN)
        self.prior = nn.Linear(HIDDEN, 2 * STATES)
        self.posterior = nn.Sequential(nn.Linear(HIDDEN + ROW, 32), nn.ELU(), nn.Linear(32, 2 * STATES))
        self.row = nn.Sequential(nn.Linear(STATES, 32), nn.ELU(), nn.Linear(32, ROW))

    def forward(self, digit):
        hidden = digit.new_zeros(len(digit), HIDDEN)
        error, divergence = 0.0, 0.0
        for row in digit.unbind(1):
            prior, posterior = gaussian(self.prior(hidden)), gaussian(self.posterior(torch.cat([hidden, row], 1)))
            state = posterior.rsample()
            error = error + (self.row(state) - row).square().sum(1).mean()
            divergence = divergence + kl_divergence(posterior, prior).mean()
            hidden = self.cell(state, hidden)
        return error, divergence

    def imagine(self, count, steps=8):
        hidden = torch.zeros(count, HIDDEN)
        rows = []
        for _ in range(steps):
            state = gaussian(self.prior(hidden)).sample()
            rows.append(self.row(state))
            hidden = self.cell(state, hidden)
        return torch.stack(rows, 1)


def main():
    torch.manual_seed(0)
    digits = torch.tensor(load_digits().images, dtype=torch.float32) / 16
    model = Rows()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(60):
        error, divergence = model(digits[torch.randint(len(digits), (48,))])
        optimizer.zero_grad()
        (error + 0.3 * divergence).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"imagined ink {model.imagine(16).mean().item():.3f}")
    print(f"error {error.item():.3f}, divergence {divergence.item():.4f}")


if __name__ == "__main__":
    main()
