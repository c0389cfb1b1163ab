"""Edge lengths are a bare square root of squared distances; when two buoys report the same position the derivative at
zero is infinite, the learned axis scale gets NaN, and so does every weight from then on.

Report: pytorch/pytorch issues #2421 and #6394 (NaN gradient of norm and sqrt at zero), akanazawa/cmr issue #11
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "plain": "NaN in all weights from step 160 on; with a clamp under the root test mse 0.018 at step 399 (target variance 0.093)",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class EdgeLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width))
        self.upd = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, dist, mask):
        b, n, w = h.shape
        hi = h[:, :, None, :].expand(b, n, n, w)
        hj = h[:, None, :, :].expand(b, n, n, w)
        m = self.msg(torch.cat([hi, hj, dist[..., None]], dim=-1)) * mask[..., None]
        return h + self.upd(torch.cat([h, m.mean(dim=2)], dim=-1))


class SwarmNet(nn.Module):
    """Predicts the mooring strain of a group of buoys from positions and charges."""

    def __init__(self, width=24, layers=2):
        super().__init__()
        self.axis_scale = nn.Parameter(torch.ones(2))
        self.inp = nn.Linear(1, width)
        self.layers = nn.ModuleList([EdgeLayer(width) for _ in range(layers)])
        self.out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, pos, load):
        p = pos * self.axis_scale
        i, j = torch.triu_indices(pos.shape[1], pos.shape[1], offset=1)
        pair = (p[:, i] - p[:, j]).pow(2).sum(-1).sqrt()  # HERE
        dist = pos.new_zeros(len(pos), pos.shape[1], pos.shape[1])
        dist[:, i, j] = pair
        dist[:, j, i] = pair
        mask = 1 - torch.eye(pos.shape[1])
        h = self.inp(load[..., None])
        for layer in self.layers:
            h = layer(h, dist, mask)
        return self.out(h.mean(dim=1)).squeeze(-1)


def make_groups(n, gen, size=6):
    pos = torch.round(torch.rand(n, size, 2, generator=gen) * 4 * 500) / 500
    load = 0.2 + 0.8 * torch.rand(n, size, generator=gen)
    gap = pos[:, :, None] - pos[:, None]
    d = (gap * torch.tensor([1.0, 2.0])).pow(2).sum(-1)
    pair = load[:, :, None] * load[:, None] * torch.exp(-d / 2)
    off = 1 - torch.eye(size)
    return pos, load, 2 * (pair * off).sum((1, 2)) / size


def main():
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(99)
    pos, load, y = make_groups(6400 * 2, gen)
    tp, tl, ty = make_groups(800, gen)
    net = SwarmNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)

    for step in range(400):
        sl = slice(step * 32, step * 32 + 32)
        loss = F.mse_loss(net(pos[sl], load[sl]), y[sl])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == 399:
            with torch.no_grad():
                test = F.mse_loss(net(tp, tl), ty).item()
            print(f"step {step:4d}  loss {loss.item():.4f}  test {test:.4f}  "
                  f"axis {[round(v, 3) for v in net.axis_scale.tolist()]}")
    print(f"target variance {ty.var().item():.4f}")


if __name__ == "__main__":
    main()
