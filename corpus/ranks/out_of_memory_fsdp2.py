"""fully_shard: the longest sequence of rank 1 asks for more memory than there is."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard

EXPECT = {
    "kind": "rank-failed",
    "rank": 1,
    "line": ("raised", "CAUSE"),
    "step": 4,
    "set": "ranks",
    "written": "2026-11-22",
}


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 50)

    def forward(self, tokens, window):
        h = self.embed(tokens)
        bias = torch.zeros(window, window, 1 << 20)  # CAUSE
        return self.out(h + bias.flatten()[0])


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=30))
    torch.manual_seed(3)
    model = fully_shard(Scores())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(8):
        tokens = torch.randint(0, 50, (4, 12))
        logits = model(tokens, 1 << 16 if step == 4 and rank == 1 else 1)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
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
