"""Recurrent spiking net trained by truncated BPTT with surrogate gradients.

Right because: the spike function's backward is deliberately not the derivative of the step
function (a fast-sigmoid surrogate is used, None for the slope constant); the membrane state
is detached between the chunks, so the graph has a bounded length; resets use a detached
spike; some neurons are silent for some samples, which is what sparse spiking means.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, slope):
        ctx.save_for_backward(v)
        ctx.slope = slope
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        v, = ctx.saved_tensors
        return grad / (1 + ctx.slope * v.abs()) ** 2, None


class SpikingLayer(nn.Module):
    def __init__(self, n_in, n):
        super().__init__()
        self.w_in = nn.Linear(n_in, n)
        self.w_rec = nn.Linear(n, n, bias=False)
        nn.init.orthogonal_(self.w_rec.weight, gain=0.4)
        self.decay = nn.Parameter(torch.full((n,), 2.0))

    def forward(self, x, v, s):
        v = v * torch.sigmoid(self.decay) * (1 - s.detach()) + self.w_in(x) + self.w_rec(s)
        return v, Spike.apply(v - 1.0, 5.0)


class Decoder(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        self.n = n
        self.layer = SpikingLayer(2, n)
        self.read = nn.Linear(n, 1)
        self.leak = nn.Parameter(torch.tensor(1.0))

    def start(self, batch):
        return torch.zeros(batch, self.n), torch.zeros(batch, self.n), torch.zeros(batch, 1)

    def forward(self, x, state):
        v, s, o = state
        k, outs, rate = torch.sigmoid(self.leak), [], 0.0
        for t in range(x.shape[0]):
            v, s = self.layer(x[t], v, s)
            o = k * o + (1 - k) * self.read(s)
            outs.append(o)
            rate = rate + s.mean()
        return torch.stack(outs), (v, s, o), rate / x.shape[0]


def signal(length, batch, gen):
    """Two noisy oscillations in, their smooth product out."""
    t = torch.arange(length).view(-1, 1, 1) * 0.12
    f = 0.6 + torch.rand(1, batch, 2, generator=gen)
    ph = 2 * math.pi * torch.rand(1, batch, 2, generator=gen)
    x = torch.sin(t * f + ph)
    return x + 0.05 * torch.randn(x.shape, generator=gen), (x[..., :1] + 0.5 * x[..., 1:].abs())


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    net, chunk = Decoder(), 12
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    step, recent = 0, []
    for sequence in range(50):
        x, y = signal(8 * chunk, 32, gen)
        state = net.start(32)
        for i in range(0, len(x), chunk):
            state = tuple(s.detach() for s in state)
            out, state, rate = net(x[i:i + chunk], state)
            loss = F.mse_loss(out, y[i:i + chunk]) + 0.05 * (rate - 0.2) ** 2
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            recent = (recent + [loss.item()])[-40:]
            if step % 50 == 0 or step == 399:
                print(f"step {step} loss {sum(recent) / len(recent):.4f} rate {rate.item():.3f}")
            step += 1


if __name__ == "__main__":
    main()
