"""Two processes train a small drafter on anchors that are drawn from each text: where a batch is too short to give any anchor, that process goes on to its next batch without a backward pass, and is through before the other one.

Report: https://github.com/NVIDIA-NeMo/Automodel/pull/2468 (DFlash: a per-rank `continue` on no valid anchors under DDP; the gradient all-reduce is triggered by backward, the others wait on a reduce that never comes)
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

EXPECT = {
    "class": "hangs", "framework": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS",
    "set": "eleventh", "written": "2026-11-23",
}
VOCAB, BLOCK = 24, 4


class Drafter(nn.Module):
    """Guesses the next few words after an anchor at once."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.past = nn.GRU(width, width, batch_first=True)
        self.guess = nn.Linear(width, BLOCK * VOCAB)

    def forward(self, ids, row, anchor):
        h, _ = self.past(self.embed(ids))
        return self.guess(h[row, anchor]).unflatten(-1, (BLOCK, VOCAB))


def draw_anchors(ids, each=3):
    room = ids.shape[1] - BLOCK
    if room <= 0:
        return None
    row = torch.arange(len(ids)).repeat_interleave(each)
    return row, torch.randint(0, room, (len(row),))


class Loader:
    """Texts in batches of one length; one of the second process's is very short."""

    def __init__(self, rank, batches=40):
        self.generator = torch.Generator().manual_seed(rank)
        self.lengths = torch.randint(10, 24, (batches,), generator=self.generator).tolist()
        if rank == 1:
            self.lengths[25] = 3

    def __iter__(self):
        for length in self.lengths:
            start = torch.randint(0, VOCAB, (8, 1), generator=self.generator)
            yield (start + 5 * torch.arange(length)) % VOCAB


def train(rank, world, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=8))
    torch.manual_seed(0)
    model = DDP(Drafter())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, ids in enumerate(Loader(rank)):
        anchors = draw_anchors(ids)
        if anchors is None:
            print(f"rank {rank} step {step}: no anchors, skipped", flush=True)
            continue  # SKIPS
        row, anchor = anchors
        logits = model(ids, row, anchor)
        target = ids[row[:, None], anchor[:, None] + 1 + torch.arange(BLOCK)]
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()  # WAITS
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(2, os.path.join(folder, "meeting")), nprocs=2)
