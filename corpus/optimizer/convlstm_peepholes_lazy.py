"""Nowcasting with a convolutional LSTM: the peephole weights depend on the size of the image and are made in the first forward, when the optimizer has long got its parameters.

Report: https://github.com/automan000/Convolutional_LSTM_PyTorch/issues/17 (Wci, Wcf, Wco and whether the optimizer updates them; also issue 9 there)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["cell.Wci", "cell.Wcf", "cell.Wco"],
    "set": "fifth", "written": "2026-11-22",
}


class ConvLSTMCell(nn.Module):
    def __init__(self, inputs, hidden, kernel=3):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(inputs + hidden, 4 * hidden, kernel, padding=kernel // 2)
        self.Wci = self.Wcf = self.Wco = None

    def init_hidden(self, batch, shape):
        if self.Wci is None:
            self.Wci = nn.Parameter(torch.zeros(1, self.hidden, *shape))
            self.Wcf = nn.Parameter(torch.zeros(1, self.hidden, *shape))
            self.Wco = nn.Parameter(torch.zeros(1, self.hidden, *shape))
        return torch.zeros(batch, self.hidden, *shape), torch.zeros(batch, self.hidden, *shape)

    def forward(self, x, h, c):
        i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        i, f = torch.sigmoid(i + c * self.Wci), torch.sigmoid(f + c * self.Wcf)
        c = f * c + i * torch.tanh(g)
        return torch.sigmoid(o + c * self.Wco) * torch.tanh(c), c


class Nowcast(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.cell, self.readout = ConvLSTMCell(1, hidden), nn.Conv2d(hidden, 1, 1)

    def forward(self, frames):
        h, c = self.cell.init_hidden(len(frames), frames.shape[-2:])
        for t in range(frames.shape[1]):
            h, c = self.cell(frames[:, t], h, c)
        return self.readout(h)


torch.manual_seed(0)
net = Nowcast()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)  # OPTIMIZER
for step in range(80):
    first = torch.rand(4, 1, 1, 8, 8)
    film = torch.cat([first.roll(t, -1) for t in range(6)], 1)[:, :, None].view(4, 6, 1, 8, 8)
    loss = nn.functional.mse_loss(net(film[:, :5]), film[:, 5])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), net.cell.Wci.abs().max().item())
