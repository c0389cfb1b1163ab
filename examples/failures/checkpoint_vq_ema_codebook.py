"""VQ layer inside a checkpoint: EMA cluster counts are updated in forward and again when recomputed."""

import torch
import torch.utils.checkpoint as cp
from torch import nn

EXPECT = {"kind": "checkpoint-side-effect", "line": ("region", "REGION"), "module": "mid.1"}


class Quantizer(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.register_buffer("codes", torch.randn(k, d))
        self.register_buffer("counts", torch.zeros(k))

    def forward(self, z):
        with torch.no_grad():
            index = torch.cdist(z, self.codes).argmin(1)
            if self.training:
                self.counts.mul_(0.99).add_(nn.functional.one_hot(index, len(self.codes)).sum(0), alpha=0.01)
        q = self.codes[index]
        return z + (q - z).detach()


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 4)
        self.mid = nn.Sequential(nn.Linear(4, 4), Quantizer(6, 4), nn.Linear(4, 4))
        self.dec = nn.Linear(4, 10)

    def forward(self, x):
        h = self.enc(x)
        return self.dec(cp.checkpoint(self.mid, h, use_reentrant=True))  # REGION


def main(steps=3):
    torch.manual_seed(0)
    model = VQVAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(16, 10)
        loss = (model(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    total = model.mid[1].counts.sum().item()
    return {"reproduced": total > 16 * 0.01 * steps * 1.5, "total": total}


if __name__ == "__main__":
    print(main())
