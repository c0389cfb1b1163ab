"""Fine-tunes a small GPT-2 after cutting its vocabulary to the tokens in use; the token embeddings (and tied output layer) never move.
Report: https://github.com/helpmefindaname/transformer-smaller-training-vocab/pull/3 (embeddings are swapped after the optimizer was made,
the optimizer still holds the old embedding parameter; also https://github.com/huggingface/transformers/pull/3532)
Effect: the embedding table in use does not move by one bit and the loss stops at 3.56 (1.62 in the mended copy).
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "OTHER"),
    "what": "the embedding table is replaced after the optimizer was made, so the optimizer holds the old weight and the one in use (tied to the output) is never updated",
    "set": "twentieth", "written": "2026-11-27",
}

FULL_VOCAB, LENGTH, STEPS = 400, 24, 150


class Clauses(Dataset):
    """Every clause opens with a marker word which decides the stride of the words that follow."""

    def __init__(self, n=512, seed=3):
        g = torch.Generator().manual_seed(seed)
        self.used = torch.randperm(FULL_VOCAB, generator=g)[:56]
        kind = torch.randint(0, 8, (n, 1), generator=g)
        start = torch.randint(0, 48, (n, 1), generator=g)
        body = (start + (kind * 3 + 1) * torch.arange(LENGTH - 1)) % 48
        self.ids = self.used[torch.cat([48 + kind, body], dim=1)]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


def keep_tokens(model, used):
    old = model.get_input_embeddings()
    small = nn.Embedding(len(used), old.embedding_dim)
    small.weight.data.copy_(old.weight.data[used])
    model.set_input_embeddings(small)  # OTHER
    model.config.vocab_size = len(used)
    model.tie_weights()
    lookup = torch.full((FULL_VOCAB,), -1)
    lookup[used] = torch.arange(len(used))
    return lookup


def main():
    torch.manual_seed(21)
    data = Clauses()
    config = GPT2Config(vocab_size=FULL_VOCAB, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)  # OTHER
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=STEPS)

    lookup = keep_tokens(model, data.used)  # CAUSE
    loader = DataLoader(data, batch_size=16, shuffle=True)

    model.train()
    step, running = 0, 0.0
    while step < STEPS:
        for batch in loader:
            ids = lookup[batch]
            out = model(input_ids=ids, labels=ids)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
            running += out.loss.item()
            step += 1
            if step % 30 == 0:
                print(f"step {step:3d}  loss {running / 30:.3f}  lr {scheduler.get_last_lr()[0]:.1e}")
                running = 0.0
            if step == STEPS:
                break


if __name__ == "__main__":
    main()
