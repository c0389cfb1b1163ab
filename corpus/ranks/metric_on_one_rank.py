"""Cell segmentation, a small U-Net with batch norm under DDP; now and then held-out images are scored."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"kind": "rank-desync", "rank": 0, "step": 5, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}
SIZE, BATCH, STEPS, EVERY = 24, 6, 20, 5


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.top = conv(1, width)
        self.bottom = conv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = conv(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.top(x)
        b = self.up(self.bottom(F.max_pool2d(a, 2)))
        return self.out(self.merge(torch.cat([a, b], 1)))


def images(count, gen):
    """Bright discs on a noisy ground, and their masks."""
    grid = torch.stack(torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")).float()
    mask = torch.zeros(count, SIZE, SIZE)
    for _ in range(3):
        centre = SIZE * torch.rand(count, 2, 1, 1, generator=gen)
        radius = 2 + 3 * torch.rand(count, 1, 1, generator=gen)
        mask = torch.maximum(mask, ((grid - centre).square().sum(1) < radius.square()).float())
    x = mask + 0.6 * torch.randn(mask.shape, generator=gen)
    return x[:, None], mask[:, None]


def dice_loss(logits, mask):
    p = logits.sigmoid()
    overlap = (p * mask).sum((1, 2, 3))
    return 1 - ((2 * overlap + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


class MeanDice:
    """Running mean over images, of all the ranks."""

    def __init__(self):
        self.state = torch.zeros(2)

    def update(self, logits, mask):
        self.state += torch.tensor([len(mask) * (1 - dice_loss(logits, mask).item()), len(mask)])

    def compute(self):
        total = self.state.clone()
        dist.all_reduce(total)
        self.state.zero_()
        return (total[0] / total[1]).item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(40 + rank)
    held_x, held_mask = (t.chunk(ranks)[rank] for t in images(8, torch.Generator().manual_seed(7)))
    metric = MeanDice()
    model = DDP(UNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    loss = torch.zeros(())
    for step in range(STEPS):
        if step and step % EVERY == 0:
            model.eval()
            with torch.no_grad():
                metric.update(model.module(held_x), held_mask)
            report = f"dice of held-out {metric.compute():.4f}" if rank == 0 else "evaluated"  # HERE
            print(f"[{rank}] after {step} steps: loss {loss.item():.4f}, {report}", flush=True)
        x, mask = images(BATCH, gen)
        model.train()
        logits = model(x)
        loss = dice_loss(logits, mask) + F.binary_cross_entropy_with_logits(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        path = os.path.join(tempfile.mkdtemp(), "unet.pt")
        torch.save(model.module.state_dict(), path)
        print(f"[{rank}] saved {len(model.module.state_dict())} tensors", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
