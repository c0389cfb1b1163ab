"""Two processes train a language model whose one block is run several times, as in ALBERT; long texts come after some steps, and for them the block is recomputed in the backward pass, each run of it with a backward pass of its own.

Report: https://github.com/microsoft/FocalNet/issues/4 (torch.utils.checkpoint + DDP: "Expected to mark a variable ready only once ... reused parameters in multiple reentrant backward passes"); the same in https://github.com/huggingface/trl/issues/835
"""
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "dies-late", "framework": "ddp", "kind": "ddp-ready-twice", "failing_marker": "FAILS", "step": 20,
    "set": "eleventh", "written": "2026-11-23",
}
VOCAB = 24


class SharedBlockLM(nn.Module):
    def __init__(self, width=24, rounds=3, save_from=32):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB)
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.rounds, self.save_from = rounds, save_from

    def run_block(self, x):
        length = x.shape[1]
        mask = torch.ones(length, length).triu(1).bool()
        return self.block(x, src_mask=mask)

    def forward(self, ids):
        x = self.embed(ids)
        for _ in range(self.rounds):
            if ids.shape[1] >= self.save_from:
                x = checkpoint(self.run_block, x, use_reentrant=True)
            else:
                x = self.run_block(x)
        return self.out(x)


def texts(follow, length, count=8):
    ids = [torch.randint(0, VOCAB, (count,))]
    for _ in range(length):
        ids.append(torch.where(torch.rand(count) < 0.1, torch.randint(0, VOCAB, (count,)), follow[ids[-1]]))
    return torch.stack(ids, 1)


def train(rank, world, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    model, follow = DDP(SharedBlockLM()), torch.randint(0, VOCAB, (VOCAB,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.manual_seed(rank)
    for step in range(40):
        ids = texts(follow, length=12 if step < 20 else 32)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # FAILS
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(2, os.path.join(folder, "meeting")), nprocs=2)
