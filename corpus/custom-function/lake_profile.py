"""The custom function multiplies grad_output in place in backward; that tensor is shared with the skip connection, so
the skip path is damped too and the early blocks get almost no gradient.

Report: torch docs on extending autograd (backward must not modify grad_output in place)
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "gradient-overwritten",
    "line": ("mutated", "HERE"),
    "plain": "test mse 0.179 (target variance 0.202) and the first layer does not move; with an out-of-place product 0.048",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Damp(torch.autograd.Function):
    """Identity forward, smaller gradient for the branch on the way back."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.mul_(ctx.factor), None  # HERE


class Block(nn.Module):
    def __init__(self, width, factor):
        super().__init__()
        self.factor = factor
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width * 2)
        self.down = nn.Linear(width * 2, width)

    def forward(self, x):
        branch = self.down(F.gelu(self.up(self.norm(x))))
        return x + Damp.apply(branch, self.factor)


class ProfileNet(nn.Module):
    """Predicts temperature at eight depths from time, place and weather."""

    def __init__(self, n_in=6, width=32, depth=6, n_out=8, factor=0.1):
        super().__init__()
        self.freq = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList([Block(width, factor) for _ in range(depth)])
        self.head = nn.Linear(width, n_out)

    def forward(self, x):
        h = torch.tanh(self.freq(x))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def make_lakes(n, gen, w):
    x = torch.rand(n, 6, generator=gen) * 2 - 1
    depth = torch.linspace(0, 1, 8)
    season = torch.sin(3.0 * x @ w[:, 0])[:, None]
    mix = torch.sigmoid(6 * (depth - 0.5 - 0.4 * torch.tanh(x @ w[:, 1])[:, None]))
    wind = torch.cos(3.0 * x @ w[:, 2])[:, None]
    y = season * (1 - mix) + 0.5 * wind * mix
    return x, y + 0.02 * torch.randn(y.shape, generator=gen)


def main():
    torch.manual_seed(10)
    gen = torch.Generator().manual_seed(100)
    w = torch.randn(6, 3, generator=gen) / 6 ** 0.5
    x, y = make_lakes(4000, gen, w)
    xt, yt = make_lakes(1000, gen, w)

    net = ProfileNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=800)

    for step in range(800):
        idx = torch.randint(0, len(x), (128,), generator=gen)
        loss = F.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 160 == 0 or step == 799:
            with torch.no_grad():
                test = F.mse_loss(net(xt), yt).item()
            print(f"step {step:4d}  loss {loss.item():.4f}  test {test:.4f}")
    print(f"target variance {yt.var(0).mean().item():.4f}")


if __name__ == "__main__":
    main()
