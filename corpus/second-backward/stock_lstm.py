"""Trains an LSTM on a long price-like series piece by piece; the second step raises an error in backward.

Report: https://github.com/MorvanZhou/PyTorch-Tutorial/issues/57 (without h_state = h_state.data the second backward raises "Trying to backward through the graph a second time")

Effect: RuntimeError at the second optimizer step, because the hidden state still hangs on the graph of the first piece.
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "second-backward", "line": ("freed", "OTHER"),
    "what": "The hidden state that is carried to the next piece still belongs to the graph of the previous piece, which is already freed; detach it before it is used again.",
    "set": "eighteenth", "written": "2026-11-27",
}


class PriceModel(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        out, state = self.lstm(x, state)
        return self.head(out), state


def make_series(rows=8, length=2001):
    torch.manual_seed(0)
    t = torch.arange(length).float()
    phase = torch.rand(rows, 1) * 6.28
    return (torch.sin(0.15 * t + phase) + 0.4 * torch.sin(0.041 * t) + 0.05 * torch.randn(rows, length))[..., None]


def train(piece=20):
    series = make_series()
    model = PriceModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.MSELoss()
    state = None
    for step, start in enumerate(range(0, series.shape[1] - piece - 1, piece)):
        x = series[:, start:start + piece]
        y = series[:, start + 1:start + piece + 1]
        pred, state = model(x, state)  # CAUSE
        loss = criterion(pred, y)
        optimizer.zero_grad()
        loss.backward()  # OTHER
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    train()
