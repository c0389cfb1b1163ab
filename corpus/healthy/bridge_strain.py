"""Healthy: a part is frozen and thawed, its gradients set to None."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def strain_series(n, gen, length=24):
    t = torch.arange(length).float()
    freq = 0.2 + 0.5 * torch.rand(n, 1, generator=gen)
    amp = 0.5 + torch.rand(n, 1, generator=gen)
    phase = 6.28 * torch.rand(n, 1, generator=gen)
    s = amp * torch.sin(freq * t + phase) + 0.05 * torch.randn(n, length, generator=gen)
    return s[:, :-1, None], s[:, -1], freq.squeeze(1)


class StrainNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 32, batch_first=True)
        self.next = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.freq = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        h = self.rnn(x)[1][0]
        return self.next(h).squeeze(1), self.freq(h).squeeze(1)


def set_frozen(module, frozen):
    for p in module.parameters():
        p.requires_grad_(not frozen)
        if frozen:
            p.grad = None


def run():
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(13)
    net = StrainNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    frozen_from, thaw_at = 320, 420
    for step in range(600):
        x, nxt, freq = strain_series(48, gen)
        a, b = net(x)
        loss = F.mse_loss(a, nxt) + 2 * F.mse_loss(b, freq)
        for p in net.parameters():
            if p.requires_grad:
                p.grad = None
        loss.backward()
        if step == frozen_from:
            set_frozen(net.rnn, True)
            before = net.rnn.weight_hh_l0.detach().clone()
        if step == thaw_at:
            print("largest change while frozen", (net.rnn.weight_hh_l0 - before).abs().max().item())
            set_frozen(net.rnn, False)
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")
    x, nxt, freq = strain_series(1500, gen)
    with torch.no_grad():
        a, b = net(x)
    print(f"final next mse {F.mse_loss(a, nxt).item():.4f} freq mse {F.mse_loss(b, freq).item():.4f}")


if __name__ == "__main__":
    run()
