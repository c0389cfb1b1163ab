"""Spoken dates to digits with a small encoder-decoder under accelerate, four micro-batches per update.

Looks suspicious: step() and zero_grad() of the optimizer are called after every micro-batch, the decoder is fed the
right answer, and many target positions give no loss. It is right: the prepared optimizer skips step and zero_grad
inside accumulate() until the fourth micro-batch (or the end of the loader), the decoder's input is the answer moved by
one, and only padding is left out of the loss.

Asked in public: https://github.com/huggingface/diffusers/issues/10855
"""
import random

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

EXPECT = {
    "kind": None,
    "plain": "The loss falls and the decoded dates become right.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

PAD, BOS, EOS = 0, 1, 2
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
CHARS = "abcdefghijklmnopqrstuvwxyz0123456789 -"
INDEX = {c: i + 3 for i, c in enumerate(CHARS)}
VOCAB = len(CHARS) + 3


def encode(text):
    return [INDEX[c] for c in text]


def make_pairs(n, seed):
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        day, month = rng.randint(1, 28), rng.randint(1, 12)
        form = rng.choice(["{d} {m}", "{m} {d}", "the {d} of {m}"])
        target = f"{month}-{day}"
        pairs.append((encode(form.format(d=day, m=MONTHS[month - 1])), [BOS] + encode(target) + [EOS]))
    return pairs


def collate(batch):
    src, tgt = zip(*batch)
    pad = lambda rows: pad_sequence([torch.tensor(r) for r in rows], batch_first=True, padding_value=PAD)
    return pad(src), pad(tgt)


class DateModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(dim, 2 * dim, batch_first=True)
        self.out = nn.Linear(4 * dim, VOCAB)

    def forward(self, src, tgt):
        memory, state = self.encoder(self.embed(src))
        state = torch.cat([state[0], state[1]], -1)[None]
        h, _ = self.decoder(self.embed(tgt), state)
        score = (h @ memory.transpose(1, 2)).masked_fill((src == PAD)[:, None], -1e9)
        return self.out(torch.cat([h, score.softmax(-1) @ memory], -1))


@torch.no_grad()
def exact(model, pairs):
    model.eval()
    src, tgt = collate(pairs)
    out = torch.full((len(src), 1), BOS)
    for _ in range(tgt.shape[1] - 1):
        out = torch.cat([out, model(src, out)[:, -1:].argmax(-1)], 1)
    model.train()
    good = ((out == tgt) | (tgt == PAD)).all(1)
    return good.float().mean().item()


def main():
    torch.manual_seed(13)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = DateModel()
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)
    loader = DataLoader(make_pairs(1200, 1), batch_size=16, shuffle=True, collate_fn=collate)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    test = make_pairs(200, 2)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(4):
        total = 0.0
        for src, tgt in loader:
            with accelerator.accumulate(model):
                logits = model(src, tgt[:, :-1])
                loss = criterion(logits.flatten(0, 1), tgt[:, 1:].flatten())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            total += loss.item() / len(loader)
        print(f"epoch {epoch}  loss {total:.4f}  exact {exact(model, test):.3f}")


if __name__ == "__main__":
    main()
