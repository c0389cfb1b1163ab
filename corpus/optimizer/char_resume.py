"""Trains a character model in two sittings; after resuming from the checkpoint the learning rate starts over with warmup and full height.
Report: https://github.com/PolymathicAI/the_well/pull/63 (resuming restarts warmup and cosine decay because the scheduler's state is neither saved
nor loaded) and https://github.com/torch-points3d/torch-points3d/pull/630
Effect: the rate in the second half is two and more times the planned one; validation loss 0.306 at the end (0.286 in the mended copy).
"""
import math
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "schedule-not-resumed", "line": ("cause", "CAUSE"),
    "what": "the scheduler is not saved and restored with the checkpoint, so the resumed run begins its warmup and cosine anew instead of going on at step 120",
    "set": "twentieth", "written": "2026-11-27",
}

TOTAL, WARMUP, PEAK, BLOCK = 240, 12, 4e-2, 32
WORDS = "the old river runs past seven stone mills and under a narrow bridge where grey herons wait for small silver fish".split()


def corpus(seed=5, words=6000):
    g = torch.Generator().manual_seed(seed)
    text, w = [], 0
    for _ in range(words):
        text.append(WORDS[w])
        w = (w + int(torch.randint(1, 4, (1,), generator=g))) % len(WORDS)
    text = " ".join(text)
    chars = sorted(set(text))
    return torch.tensor([chars.index(c) for c in text]), len(chars)


class CharModel(nn.Module):
    def __init__(self, vocab, width=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def schedule(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (TOTAL - WARMUP))))


def batch(data, n=16):
    at = torch.randint(0, len(data) - BLOCK - 1, (n,))
    return torch.stack([data[i:i + BLOCK + 1] for i in at])


def lm_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def sitting(path, data, valid, vocab, until):
    model = CharModel(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK)
    start = 0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])  # OTHER
        start = state["step"]
        print(f"resumed at step {start}")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)  # CAUSE
    for step in range(start, until):
        loss = lm_loss(model, batch(data))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if (step + 1) % 30 == 0:
            with torch.no_grad():
                held_out = lm_loss(model, valid).item()
            print(f"step {step + 1:3d}  loss {loss.item():.3f}  valid {held_out:.4f}  lr {optimizer.param_groups[0]['lr']:.5f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": until}, path)  # OTHER


if __name__ == "__main__":
    torch.manual_seed(14)
    ids, vocab = corpus()
    valid = batch(ids[-4000:], 64)
    with tempfile.TemporaryDirectory() as folder:
        for until in (TOTAL // 2, TOTAL):
            sitting(os.path.join(folder, "last.pt"), ids[:-4000], valid, vocab, until)
