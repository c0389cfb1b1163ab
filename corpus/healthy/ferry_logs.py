"""Healthy: a recurrent character model: a detach for each chunk, accumulation, averages swapped in and out."""
import torch
import torch.nn.functional as F
from pydoc_data.topics import topics
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Logbook(nn.Module):
    """Character model with tied input and output tables."""

    def __init__(self, vocab, width=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.rnn = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, vocab)
        self.out.weight = self.emb.weight
        self.register_buffer("temperature", torch.tensor(1.0))

    def forward(self, x, state=None):
        h, state = self.rnn(self.emb(x), state)
        return self.out(h) / self.temperature, state


class AveragedWeights:
    def __init__(self, model, decay):
        self.model, self.decay, self.n = model, decay, 0
        self.avg = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        self.n += 1
        d = min(self.decay, self.n / (self.n + 10))
        for n, p in self.model.named_parameters():
            self.avg[n].mul_(d).add_(p, alpha=1 - d)

    def __enter__(self):
        self.kept = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self._put(self.avg)

    def __exit__(self, *exc):
        self._put(self.kept)

    @torch.no_grad()
    def _put(self, values):
        for n, p in self.model.named_parameters():
            p.copy_(values[n])


def streams(lanes=16):
    text = "".join(topics[k] for k in sorted(topics)[:20])
    chars = sorted(set(text))
    index = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([index[c] for c in text])
    cut = len(ids) * 9 // 10
    fold = lambda v: v[: len(v) // lanes * lanes].view(lanes, -1)
    return fold(ids[:cut]), fold(ids[cut:]), len(chars)


@torch.no_grad()
def score(model, data, chunk=64):
    model.eval()
    state, losses = None, []
    for i in range(0, min(data.shape[1] - 1 - chunk, 400), chunk):
        logits, state = model(data[:, i:i + chunk], state)
        losses.append(F.cross_entropy(logits.flatten(0, 1), data[:, i + 1:i + chunk + 1].flatten()))
    model.train()
    return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(19)
    train, test, vocab = streams()
    model = Logbook(vocab)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    average = AveragedWeights(model, decay=0.98)
    chunk, accum, state, pos = 32, 2, None, 0

    for micro in range(600):
        if pos + chunk + 1 > train.shape[1]:
            pos, state = 0, None
        x, y = train[:, pos:pos + chunk], train[:, pos + 1:pos + chunk + 1]
        logits, state = model(x, state)
        state = state.detach()
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (loss / accum).backward()
        pos += chunk
        if (micro + 1) % accum == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            average.update()
        if (micro + 1) % 100 == 0:
            plain = score(model, test)
            with average:
                smooth = score(model, test)
            print(f"chunk {micro + 1:4d}  loss {loss.item():.3f}  test {plain:.3f}  averaged {smooth:.3f}")


if __name__ == "__main__":
    main()
