"""Predict the ground velocity one step ahead from windows of a seismometer trace (recurrent network, plain SGD).

Report: https://github.com/pytorch/pytorch/issues/148259
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "PyTorch warns once that the parameters are an empty generator; the error on quiet windows jumps about between 2 and 10 and never gets small, although a clipping of 1.0 is in the loop",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

WINDOW = 24


def make_trace(n=9000, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    trace = np.sin(2 * np.pi * t / 37.0) + 0.5 * np.sin(2 * np.pi * t / 11.0 + 0.4)
    trace = trace + 0.05 * rng.standard_normal(n)
    for start in rng.choice(n - 200, size=6, replace=False):
        length = int(rng.integers(3, 7))
        trace[start:start + length] += rng.choice([-1, 1]) * rng.uniform(150, 400, size=length)
    return trace.astype(np.float32)


def windows(trace):
    x = np.lib.stride_tricks.sliding_window_view(trace, WINDOW)[:-1]
    y = trace[WINDOW:]
    return torch.from_numpy(x.copy()).unsqueeze(-1), torch.from_numpy(y.copy())


class StepAhead(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.read = nn.Linear(hidden, 1)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.read(states[:, -1]).squeeze(-1)


@torch.no_grad()
def quiet_error(model, x, y):
    model.eval()
    error = (model(x) - y).abs().median().item()
    model.train()
    return error


def main():
    torch.manual_seed(0)
    x, y = windows(make_trace())
    quiet = (x.abs().amax(dim=(1, 2)) < 5) & (y.abs() < 5)
    hold = quiet.nonzero().squeeze(1)[::12]
    keep = torch.ones(len(y), dtype=torch.bool)
    keep[hold] = False
    loader = DataLoader(TensorDataset(x[keep], y[keep]), batch_size=64, shuffle=True,
                        generator=torch.Generator().manual_seed(1))

    model = StepAhead()
    params = model.parameters()  # HERE
    total = sum(p.numel() for p in params)
    print(f"weights: {total}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    for epoch in range(6):
        running = 0.0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            running += loss.item()
            step += 1
        print(f"epoch {epoch} step {step} loss {running / len(loader):.3f} "
              f"median error on quiet windows {quiet_error(model, x[hold], y[hold]):.4f}")


if __name__ == "__main__":
    main()
