"""A damaged row raises in a worker of the data loader of rank 0."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

EXPECT = {"kind": "rank-failed", "rank": 0, "line": ("", "LOADS"), "set": "ranks", "written": "2026-11-22"}


class Rows(Dataset):
    def __init__(self, rank):
        self.texts = [str(i) for i in range(48)]
        if rank == 0:
            self.texts[29] = "2g"

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return torch.full((6,), float(self.texts[i]) / 64)  # CAUSE


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
    model = DistributedDataParallel(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for x in DataLoader(Rows(rank), batch_size=8, num_workers=1):  # LOADS
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
