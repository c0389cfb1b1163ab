"""Character model with truncated BPTT, written with a manual SGD update and hand-cleared gradients.

Source: https://github.com/MorvanZhou/PyTorch-Tutorial/issues/57 (the detach that belongs there)
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "none", "set": "twelfth", "written": "2026-11-25"}

TEXT = ("the quick brown fox jumps over the lazy dog while the slow red hen sits on the warm stone wall and "
        "the old grey cat sleeps under the tall green tree ") * 60


class CharLSTM(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.embed, self.cell = nn.Embedding(vocab, dim), nn.LSTMCell(dim, dim)
        self.gain = nn.Parameter(torch.ones(dim))
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens, state):
        h, c = state
        logits = torch.empty(tokens.shape[0], tokens.shape[1], self.out.out_features)
        for t in range(tokens.shape[0]):
            h, c = self.cell(self.embed(tokens[t]), (h, c))
            y = h * self.gain
            y += 0.1
            logits[t] = self.out(torch.relu_(y))
        return logits, (h, c)


def corpus(text, n_streams):
    chars = sorted(set(text))
    data = torch.tensor([chars.index(c) for c in text])
    n = len(data) // n_streams
    return data[:n * n_streams].view(n_streams, n).t().contiguous(), len(chars)


@torch.no_grad()
def sgd(params, velocity, lr, momentum=0.9, clip=1.0):
    total = torch.stack([p.grad.norm() for p in params]).norm()
    scale = min(1.0, clip / (total.item() + 1e-6))
    for p, v in zip(params, velocity):
        v.mul_(momentum).add_(p.grad, alpha=scale)
        p.sub_(lr * v)
        p.grad = None


def main(bptt=12, n_streams=16, epochs=5):
    torch.manual_seed(0)
    data, vocab = corpus(TEXT, n_streams)
    model = CharLSTM(vocab)
    params = list(model.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    step, running = 0, None
    for epoch in range(epochs):
        state = (torch.zeros(n_streams, 48), torch.zeros(n_streams, 48))
        for start in range(0, len(data) - bptt - 1, bptt):
            x, y = data[start:start + bptt], data[start + 1:start + bptt + 1]
            logits, state = model(x, state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            sgd(params, velocity, lr=0.5)
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
            step += 1
        print(f"epoch {epoch} step {step} loss {running:.3f}")


if __name__ == "__main__":
    main()
