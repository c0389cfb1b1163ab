"""DDP generator used for two losses with a backward each (adversarial, then cycle) in one iteration."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn

EXPECT = {"kind": "ddp-ready-twice", "line": ("failed", "FAILS")}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.style = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.relu(self.enc(x))
        return self.dec(h), self.style(h)


def train_step(G, D, opt, x):
    fake, style = G(x)
    opt.zero_grad()
    losses = {"adv": -D(fake).mean(), "style": style.square().mean()}
    losses["adv"].backward(retain_graph=True)  # FIRST
    losses["style"].backward()  # FAILS
    opt.step()


def main():
    store = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    torch.manual_seed(0)
    try:
        G, D = nn.parallel.DistributedDataParallel(Generator()), nn.Linear(6, 1)
        opt = torch.optim.Adam(G.parameters())
        train_step(G, D, opt, torch.randn(4, 6))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
