"""Each rank builds its vocabulary from its own files: the embeddings have other sizes."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {
    "kind": ["rank-desync", "rank-failed", "rank-drift"],
    "line": ("", "WRAP"),
    "set": "ranks",
    "written": "2026-11-22",
}


class Tagger(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embed = nn.Embedding(words, 8)
        self.tag = nn.Linear(8, 3)

    def forward(self, x):
        return self.tag(self.embed(x)).flatten(0, 1)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    words = sorted({"the", "cat", "sat", *(["mat"] if rank == 1 else [])})
    model = DistributedDataParallel(Tagger(len(words)))  # WRAP
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randint(0, len(words), (5, 7))
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), torch.randint(0, 3, (35,))).backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
