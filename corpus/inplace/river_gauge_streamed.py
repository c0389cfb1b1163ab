"""Next-hour water level of a river from a stream of gauge readings, LSTM with carried state.

Raises in backward at the second chunk of the stream.
Follows https://blog.youkuaiyun.com/windhawk_fly/article/details/143405685
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "kind": "inplace",
    "line": ("failed", "HERE"),
    "plain": "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

STREAMS = 16
CHUNK = 24


def rainfall_and_level(hours, seed):
    rng = np.random.default_rng(seed)
    rain = np.where(rng.random((STREAMS, hours)) < 0.06, rng.gamma(2.0, 1.0, (STREAMS, hours)), 0.0)
    level = np.zeros((STREAMS, hours))
    soil = np.zeros(STREAMS)
    for t in range(1, hours):
        soil = 0.97 * soil + rain[:, t - 1]
        level[:, t] = 0.9 * level[:, t - 1] + 0.05 * soil + 0.02 * rng.normal(size=STREAMS)
    level = (level - level.mean()) / level.std()
    return np.stack([rain, level], axis=-1).astype("float32")


def chunks(series):
    for start in range(0, series.shape[1] - CHUNK, CHUNK):
        piece = torch.from_numpy(series[:, start:start + CHUNK + 1])
        yield piece[:, :-1], piece[:, 1:, 1]


class Gauge(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.rnn = nn.LSTM(2, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def start(self, batch):
        return torch.zeros(1, batch, self.width), torch.zeros(1, batch, self.width)

    def forward(self, x, state):
        out, state = self.rnn(x, state)
        return self.head(out).squeeze(-1), state


def train_epoch(model, opt, series):
    model.train()
    state = model.start(STREAMS)
    total, count = 0.0, 0
    for x, y in chunks(series):
        opt.zero_grad()
        pred, state = model(x, state)
        loss = nn.functional.mse_loss(pred, y)
        loss.backward(retain_graph=True)  # HERE
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item()
        count += 1
    return total / count


@torch.no_grad()
def evaluate(model, series):
    model.eval()
    state = model.start(STREAMS)
    errors = []
    for x, y in chunks(series):
        pred, state = model(x, state)
        errors.append((pred - y).pow(2).mean().item())
    return float(np.mean(errors))


def main():
    torch.manual_seed(0)
    train = rainfall_and_level(24 * 60, 0)
    held = rainfall_and_level(24 * 20, 1)
    model = Gauge()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        loss = train_epoch(model, opt, train)
        print(f"epoch {epoch} train {loss:.4f} held {evaluate(model, held):.4f}")


if __name__ == "__main__":
    main()
