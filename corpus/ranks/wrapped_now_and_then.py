"""Contrastive training with a trainer that hands out the model wrapped, or as it is (a public report by jxmnop on X)."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"kind": "rank-drift", "cause": "not reduced", "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.token = nn.Embedding(100, width)
        self.mix = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, ids):
        return nn.functional.normalize(self.mix(self.token(ids)).mean(1), dim=-1)


class Trainer:
    def __init__(self, model):
        self.model, self.wrapped = model, DDP(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.step = 0

    def model_for_step(self):
        if self.step % 2:
            return self.wrapped
        return self.model

    def training_step(self, ids):
        model = self.model_for_step()
        left, right = model(ids).chunk(2)
        loss = nn.functional.cross_entropy(left @ right.T * 10, torch.arange(len(left)))
        self.optimizer.zero_grad()
        loss.backward()  # HERE
        self.optimizer.step()
        self.step += 1
        return loss.item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    trainer = Trainer(Encoder())
    random = torch.Generator().manual_seed(rank)
    for _ in range(20):
        first = torch.randint(100, (8, 12), generator=random)
        second = first.clone()
        second[:, :3] = torch.randint(100, (8, 3), generator=random)
        loss = trainer.training_step(torch.cat([first, second]))
    print(f"[{rank}] loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
