"""Attention pooling over the sentences of mail threads; one empty thread turns all attention weights into NaN late in training.
Report: https://github.com/pytorch/pytorch/issues/41508 (a fully masked row makes the softmax 0/0; masked rows are not used in the loss but the gradients become NaN all the same)

The empty thread is left out of the loss, so the loss of that step is finite, but 0 * NaN in the backward of the softmax poisons
in_proj_weight. From the next step on the loss is nan (printed), accuracy falls to that of class 0.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "nonfinite-forward", "line": ("cause", "ATTN"),
    "what": "an empty thread gives a key_padding_mask row that is all True, its softmax is NaN and the backward spreads NaN into the attention weights although the row is not in the loss; drop empty threads from the batch or leave one key unmasked",
    "set": "twentysecond", "written": "2026-11-28",
}

MAX_LEN, DIM, BATCH = 10, 24, 24


class ThreadClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(DIM, 32)
        self.query = nn.Parameter(torch.randn(1, 1, 32) * 0.1)
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)
        self.out = nn.Linear(32, 3)

    def forward(self, sents, lengths):
        h = torch.tanh(self.proj(sents))
        padding = torch.arange(MAX_LEN)[None, :] >= lengths[:, None]  # CAUSE
        q = self.query.expand(len(sents), -1, -1)
        pooled, weights = self.attn(q, h, h, key_padding_mask=padding)  # ATTN
        return self.out(pooled.squeeze(1)), weights


def make_threads(n, gen):
    y = torch.randint(0, 3, (n,), generator=gen)
    centers = torch.randn(3, DIM, generator=torch.Generator().manual_seed(0))
    x = torch.randn(n, MAX_LEN, DIM, generator=gen)
    spot = torch.rand(n, MAX_LEN, generator=gen) < 0.4
    x = x + spot[..., None] * centers[y][:, None] * 0.8
    lengths = torch.randint(2, MAX_LEN + 1, (n,), generator=gen)
    return x, lengths, y


def accuracy(model, data):
    x, lengths, y = data
    with torch.no_grad():
        return (model(x, lengths)[0].argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(8)
    train, val = make_threads(BATCH * 160, gen), make_threads(300, gen)
    train[1][2500] = 0
    model = ThreadClassifier()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(160):
        part = slice(step * BATCH, (step + 1) * BATCH)
        x, lengths, y = (t[part] for t in train)
        logits, _ = model(x, lengths)
        used = lengths > 0
        loss = F.cross_entropy(logits[used], y[used])  # LOSS
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f} val acc {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
