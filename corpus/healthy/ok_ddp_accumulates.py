"""Healthy: two ranks accumulate over three batches and reduce the gradients with the last one; one branch is used only in some batches, which the wrapper is told.

Report it resembles: https://github.com/Lightning-AI/pytorch-lightning/issues/12190 (a rank without a target)
"""
import contextlib
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "third", "written": "2026-11-22"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.main, self.aux = nn.Linear(6, 12), nn.Linear(12, 3), nn.Linear(12, 1)

    def forward(self, x, with_aux):
        h = self.trunk(x).relu()
        return self.main(h), self.aux(h)[:, 0] if with_aux else None


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=30))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    torch.manual_seed(1 + rank)
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    for step in range(30):
        opt.zero_grad()
        for micro in range(3):
            x, with_aux = torch.randn(6, 6), (step + micro + rank) % 2 == 0
            with contextlib.nullcontext() if micro == 2 else net.no_sync():
                logits, extra = net(x, with_aux)
                loss = nn.functional.cross_entropy(logits, torch.arange(6) % 3)
                if extra is not None:
                    loss = loss + 0.1 * (extra - x[:, 0]).square().mean()
                (loss / 3).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    mine = nn.utils.parameters_to_vector(net.parameters()).detach()
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    print("rank", rank, "same weights", torch.equal(*both))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
