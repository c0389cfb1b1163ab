"""Data-parallel training of a small classifier whose dtype is changed and changed back after wrapping (pytorch/pytorch#104336).

The report moves the wrapped model to the CPU and back to its GPU; a change of dtype does the same to its parameters.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {"kind": "rank-drift", "cause": "not reduced", "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.net2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def validate(model, x):
    """Some evaluations are run in float64."""
    model.double()  # HERE
    with torch.no_grad():
        exact = model(x.double())
    model.float()
    return exact


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, ranks, rank))
    model = DDP(Net())
    validate(model.module, images[:8].float() / 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"[{rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
