"""Two ranks: the first saves a checkpoint every hundred steps and waits at a barrier until that is on disk, which the other rank never comes to.

Report: https://github.com/alan-turing-institute/autocast/pull/386 (a collective inside `if is_global_zero`; barriers around saving in KempnerInstitute/KempnerForge issue 49)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 99,
    "set": "fifth", "written": "2026-11-22",
}


def save_checkpoint(net, opt, path, step):
    torch.save({"model": net.module.state_dict(), "opt": opt.state_dict(), "step": step}, path)
    dist.barrier()  # WAITS


def work(rank, folder):
    store = os.path.join(folder, "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=5))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 20)))
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(200):
        ids = (torch.randint(0, 20, (8, 1), generator=g) + torch.arange(5)) % 20
        loss = nn.functional.cross_entropy(net(ids[:, :4]), ids[:, 4])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 and rank == 0:
            print(step, loss.item(), flush=True)
        if step % 100 == 99 and rank == 0:
            save_checkpoint(net, opt, os.path.join(folder, "last.pt"), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mkdtemp(),), nprocs=2)
