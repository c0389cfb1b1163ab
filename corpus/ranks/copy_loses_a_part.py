"""Data-parallel training where what one device receives has lost a part (pytorch/pytorch#84803, #96600, Baichuan2#86).

The reports are of a driver; here a copy between devices does what it did there.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": "rank-drift",
    "cause": "not reduced",
    "step": 4,
    "line": ("", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}


def copied(tensor, rank, step):
    """What comes to the device of a rank."""
    out = tensor.clone()
    if rank == 1 and step == 4:
        out.view(-1)[-out.numel() // 3 :] = 0
    return out


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(20):
        mine = torch.arange(rank + step * 32 * ranks, (step + 1) * 32 * ranks, ranks)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad.copy_(copied(p.grad / ranks, rank, step))  # HERE
        optimizer.step()
    print(f"[{rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
