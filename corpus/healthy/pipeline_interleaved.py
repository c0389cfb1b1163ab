"""Healthy: an interleaved pipeline, two stages on each rank."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2 * ranks)]
    model = nn.ModuleList(layers[rank::ranks])
    cpu = torch.device("cpu")
    stages = [PipelineStage(layer, rank + i * ranks, 2 * ranks, cpu) for i, layer in enumerate(model)]
    schedule = ScheduleInterleaved1F1B(stages, 2 * ranks, loss_fn=nn.functional.mse_loss)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for _ in range(6):
        x = torch.randn(4 * ranks, 8)
        opt.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=x.flip(1), losses=losses)
            loss = torch.stack(losses).mean()
        else:
            schedule.step()
        opt.step()
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
