"""Forecast a river gauge: parallel stations, consecutive chunks, the recurrent state is carried from chunk to chunk.

Report: https://blog.youkuaiyun.com/windhawk_fly/article/details/143405685
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "kind": "inplace",
    "line": ("failed", "HERE"),
    "plain": "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation, at the second backward",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

STATIONS = 16
CHUNK = 40


def make_gauges(days=4001, seed=8):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(0.4, 2.0, size=(days, STATIONS)) * (rng.uniform(size=(days, STATIONS)) < 0.3)
    level = np.zeros((days, STATIONS))
    store = np.zeros(STATIONS)
    keep = rng.uniform(0.9, 0.97, size=STATIONS)
    for d in range(1, days):
        store = keep * store + rain[d - 1]
        level[d] = 0.6 * level[d - 1] + 0.05 * store + 0.02 * rng.standard_normal(STATIONS)
    stack = np.stack([rain, level], axis=-1)
    stack = (stack - stack.mean(axis=(0, 1))) / stack.std(axis=(0, 1))
    return torch.tensor(stack, dtype=torch.float32)


def chunks(series):
    for start in range(0, len(series) - CHUNK, CHUNK):
        yield series[start:start + CHUNK], series[start + 1:start + CHUNK + 1, :, 1]


class GaugeNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden)
        self.read = nn.Linear(hidden, 1)

    def start(self):
        zeros = torch.zeros(1, STATIONS, self.lstm.hidden_size)
        return zeros, zeros.clone()

    def forward(self, x, state):
        out, state = self.lstm(x, state)
        return self.read(out).squeeze(-1), state


@torch.no_grad()
def score(model, series):
    prediction, _ = model(series[:-1], model.start())
    return (prediction - series[1:, :, 1]).pow(2).mean().item()


def main():
    torch.manual_seed(3)
    series = make_gauges()
    train, hold = series[:3400], series[3400:]
    model = GaugeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(10):
        state = model.start()
        total, count = 0.0, 0
        for x, y in chunks(train):
            optimizer.zero_grad()
            prediction, state = model(x, state)
            loss = nn.functional.mse_loss(prediction, y)
            loss.backward(retain_graph=True)  # HERE
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} loss {total / count:.4f} held out {score(model, hold):.4f}", flush=True)


if __name__ == "__main__":
    main()
