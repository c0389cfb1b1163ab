"""Attention by sparsemax that was written for several queries and is used with one pooled query per sentence: with an axis of length one the division in its backward spreads over the batch, and the gradient is wrong without a word.

Report: https://github.com/deep-spin/entmax/issues/13 (the gradients of sparsemax differ between a matrix and the same with a middle axis of one: squeeze() takes too much)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLIED",
    "set": "ninth", "written": "2026-11-23",
}


class Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, dim=-1):
        scores = scores - scores.max(dim, keepdim=True).values
        ordered = scores.sort(dim, descending=True).values
        rank = torch.arange(1, scores.shape[dim] + 1, dtype=scores.dtype)
        cumulated = ordered.cumsum(dim) - 1
        support = (rank * ordered > cumulated).sum(dim, keepdim=True)
        tau = cumulated.gather(dim, support - 1) / support
        out = (scores - tau).clamp(min=0)
        ctx.dim = dim
        ctx.save_for_backward(support, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        support, out = ctx.saved_tensors
        grad = grad.masked_fill(out == 0, 0)
        mean = grad.sum(ctx.dim) / support.to(out.dtype).squeeze()
        return torch.where(out != 0, grad - mean.unsqueeze(ctx.dim), grad), None


class SparseAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, query, memory):
        scores = self.q(query) @ self.k(memory).transpose(1, 2) / query.shape[-1] ** 0.5
        weights = Sparsemax.apply(scores)  # APPLIED
        return weights @ self.v(memory)


class Reader(nn.Module):
    def __init__(self, vocab=20, dim=16, questions=4, pooled=True):
        super().__init__()
        self.pooled = pooled
        self.embed = nn.Embedding(vocab, dim)
        self.questions = nn.Parameter(torch.randn(questions, dim))
        self.attention = SparseAttention(dim)
        self.out = nn.Linear(dim, 5)

    def forward(self, ids):
        query = self.questions.mean(0, keepdim=True) if self.pooled else self.questions
        read = self.attention(query.expand(len(ids), -1, -1), self.embed(ids))
        return self.out(read)


def sentences(n):
    ids = torch.randint(5, 20, (n, 9))
    answer = torch.randint(0, 5, (n,))
    ids[torch.arange(n), torch.randint(0, 9, (n,))] = answer
    return ids, answer


torch.manual_seed(0)
reader = Reader()
optimizer = torch.optim.Adam(reader.parameters(), lr=5e-3)
for step in range(160):
    ids, answer = sentences(16)
    logits = reader(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), answer.repeat_interleave(logits.shape[1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())

for shape in [(6, 3, 9), (6, 1, 9)]:
    x = torch.randn(shape, dtype=torch.double, requires_grad=True)
    print(shape, "gradcheck", torch.autograd.gradcheck(Sparsemax.apply, (x,), raise_exception=False))
