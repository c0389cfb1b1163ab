"""Character model of names, DDP; the ranks keep different numbers of batches and join() evens them out."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-24"}
LETTERS, LENGTH, BATCH, EPOCHS = 27, 9, 8, 3
SYLLABLES = ["ka", "ri", "to", "mi", "len", "sar", "jo", "han", "bel", "du"]


def names(count, seed):
    gen = torch.Generator().manual_seed(seed)
    rows = torch.zeros(count, LENGTH, dtype=torch.long)
    for row in rows:
        parts = torch.randint(0, len(SYLLABLES), (int(torch.randint(1, 5, (), generator=gen)),), generator=gen)
        text = "".join(SYLLABLES[i] for i in parts)[:LENGTH]
        row[: len(text)] = torch.tensor([ord(c) - 96 for c in text])
    return rows


class CharModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.short = nn.Linear(width, LETTERS)
        self.long = nn.Linear(width, LETTERS)

    def forward(self, ids):
        h = self.rnn(self.embed(F.pad(ids, (1, 0))[:, :-1]))[0]
        head = self.long if (ids[:, 6:] > 0).float().mean() > 0.3 else self.short
        return head(h)


def usable(rows):
    """Batches of names; those whose names are all but empty are left out, on whichever rank they are."""
    for i in range(0, len(rows), BATCH):
        part = rows[i : i + BATCH]
        if (part > 0).float().mean() < 0.5:
            continue
        yield part


def loss_of(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    rows = names(80 + 32 * rank, 50 + rank)
    held = names(64, 99)
    model = DDP(CharModel(), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    path = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(path)
    for epoch in range(EPOCHS):
        count = 0
        with model.join(divide_by_initial_world_size=False):
            for ids in usable(rows):
                loss = loss_of(model(ids), ids)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                count += 1
        print(f"[{rank}] epoch {epoch}: {count} batches, loss {loss.item():.4f}", flush=True)
        if rank == 0:
            with torch.no_grad():
                score = loss_of(model.module(held), held).item()
            torch.save(model.module.state_dict(), os.path.join(path[0], "names.pt"))
            print(f"[{rank}] epoch {epoch}: held-out {score:.4f}", flush=True)
        dist.barrier()
    saved = torch.load(os.path.join(path[0], "names.pt"))
    same = all(torch.equal(saved[k], v) for k, v in model.module.state_dict().items())
    print(f"[{rank}] as in the checkpoint: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
