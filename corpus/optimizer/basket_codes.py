"""Next product in a shopping session, with a small GPT-2 over product codes; in the third week the range is extended.

Report: https://github.com/OpenNMT/OpenNMT-py/pull/2030 (and https://github.com/huggingface/transformers/pull/3532)
"""
import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "kind": "optimizer-error",
    "line": ("replaced", "HERE"),
    "framework": "transformers",
    "late": True,
    "plain": "RuntimeError in optimizer.step at the start of the third week: the size of tensor a (60) must match the size of tensor b (160).",
    "set": "twentysixth",
    "written": "2026-11-29",
}

OLD_RANGE, NEW_RANGE = 60, 160
LENGTH = 12
WEEKS = 6


def make_followers(seed=4):
    rng = np.random.default_rng(seed)
    return {OLD_RANGE: rng.permutation(OLD_RANGE), NEW_RANGE: rng.permutation(NEW_RANGE)}


def sessions(followers, size, count, seed):
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, LENGTH), dtype=np.int64)
    rows[:, 0] = rng.integers(0, size, count)
    for place in range(1, LENGTH):
        usual = followers[size][rows[:, place - 1]]
        other = rng.integers(0, size, count)
        rows[:, place] = np.where(rng.random(count) < 0.9, usual, other)
    return torch.from_numpy(rows)


def build():
    config = GPT2Config(
        vocab_size=OLD_RANGE,
        n_positions=LENGTH,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


@torch.no_grad()
def hit_rate(model, rows):
    model.eval()
    guess = model(input_ids=rows).logits[:, :-1].argmax(-1)
    model.train()
    return (guess == rows[:, 1:]).float().mean().item()


def train_week(model, optimizer, rows):
    total, count = 0.0, 0
    for batch in DataLoader(rows, batch_size=32, shuffle=True):
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        count += 1
    return total / count


def main():
    torch.manual_seed(0)
    followers = make_followers()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    size = OLD_RANGE
    model.train()
    for week in range(WEEKS):
        if week == 2:
            size = NEW_RANGE
            model.resize_token_embeddings(size)  # HERE
            print(f"range extended to {size} products")
        loss = train_week(model, optimizer, sessions(followers, size, 1600, seed=week))
        hits = hit_rate(model, sessions(followers, size, 300, seed=100 + week))
        print(f"week {week}  loss {loss:.3f}  hit rate {hits:.3f}", flush=True)


if __name__ == "__main__":
    main()
