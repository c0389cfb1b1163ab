"""Healthy: functions with counters on the class, and their tensors on ctx."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(14)


class RangeSine(torch.autograd.Function):
    """Sine with a frequency; counts its calls and the widest input it has seen."""

    calls = 0
    widest = 0.0

    @staticmethod
    def forward(ctx, x, freq):
        RangeSine.calls += 1
        RangeSine.widest = max(RangeSine.widest, float(x.abs().max()))
        ctx.save_for_backward(x)
        ctx.freq = freq
        return torch.sin(freq * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.freq * torch.cos(ctx.freq * x), None


class GradScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


class PatchNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.mid = nn.Linear(width, width)
        self.cover = nn.Linear(width, 1)
        self.kind = nn.Linear(width, 3)

    def forward(self, xy):
        h = RangeSine.apply(self.inp(xy), 3.0)
        h = RangeSine.apply(self.mid(h), 1.0)
        return self.cover(h).squeeze(-1), self.kind(GradScale.apply(h, 0.3))


def rock_face(n, generator):
    xy = torch.rand(n, 2, generator=generator) * 2 - 1
    cover = torch.sin(4 * xy[:, 0]) * torch.cos(3 * xy[:, 1])
    kind = torch.bucketize(xy[:, 0] + torch.sin(3 * xy[:, 1]), torch.tensor([-0.5, 0.5]))
    return xy, cover, kind


def main():
    g = torch.Generator().manual_seed(2)
    model = PatchNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(600):
        xy, cover, kind = rock_face(64, g)
        c, k = model(xy)
        shifted, _ = model(xy + 0.01 * torch.randn(xy.shape, generator=g))
        loss = F.mse_loss(c, cover) + F.cross_entropy(k, kind)
        loss = loss + 0.1 * F.mse_loss(shifted, c)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")
    xy, cover, kind = rock_face(1000, g)
    with torch.no_grad():
        c, k = model(xy)
    print(f"cover mse {F.mse_loss(c, cover):.4f}  kind acc {(k.argmax(1) == kind).float().mean():.3f}")
    print(f"calls {RangeSine.calls}  widest {RangeSine.widest:.2f}")


if __name__ == "__main__":
    main()
