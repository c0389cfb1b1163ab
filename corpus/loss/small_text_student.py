"""Distil a character language model into a smaller one on the texts of pydoc_data.topics.

Report: https://github.com/microsoft/ProDA/issues/43
"""
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "SOFTMAX"),
    "plain": "the distillation loss is negative and hardly moves, the student's perplexity on held-out text is far worse than the teacher's",
    "set": "twentythird",
    "written": "2026-11-28",
}

SPAN = 48


def load_text(limit=160_000):
    text = "\n".join(topics[k] for k in sorted(topics))[:limit].lower()
    alphabet = sorted(set(text))
    index = {c: i for i, c in enumerate(alphabet)}
    ids = torch.tensor([index[c] for c in text])
    cut = int(0.9 * len(ids))
    return ids[:cut], ids[cut:], len(alphabet)


def batches(ids, steps, batch_size, generator):
    for _ in range(steps):
        starts = torch.randint(len(ids) - SPAN - 1, (batch_size,), generator=generator)
        rows = torch.stack([ids[s:s + SPAN + 1] for s in starts])
        yield rows[:, :-1], rows[:, 1:]


class CharModel(nn.Module):
    def __init__(self, n_chars, width):
        super().__init__()
        self.embed = nn.Embedding(n_chars, 32)
        self.rnn = nn.GRU(32, width, batch_first=True)
        self.out = nn.Linear(width, n_chars)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


@torch.no_grad()
def perplexity(model, ids):
    model.eval()
    total = count = 0
    for x, y in batches(ids, 10, 32, torch.Generator().manual_seed(99)):
        logits = model(x)
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    model.train()
    return math.exp(total / count)


def train_teacher(model, ids, steps=260):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step, (x, y) in enumerate(batches(ids, steps, 24, torch.Generator().manual_seed(1))):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 60 == 0:
            print(f"teacher step {step:4d}  loss {loss.item():.4f}")
    return model


def soft_loss(student_logits, teacher_logits, temperature):
    student = F.softmax(student_logits / temperature, dim=-1).flatten(0, 1)  # SOFTMAX
    teacher = F.softmax(teacher_logits / temperature, dim=-1).flatten(0, 1)
    return F.kl_div(student, teacher, reduction="batchmean") * temperature ** 2


def distil(student, teacher, ids, held_out, steps=400, temperature=1.5):
    teacher.eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=4e-3)
    for step, (x, _) in enumerate(batches(ids, steps, 24, torch.Generator().manual_seed(2))):
        with torch.no_grad():
            wanted = teacher(x)
        loss = soft_loss(student(x), wanted, temperature)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        if step % 80 == 79:
            print(f"student step {step:4d}  soft loss {loss.item():.4f}  perplexity {perplexity(student, held_out):.2f}")


def main():
    torch.manual_seed(0)
    train, held_out, n_chars = load_text()
    teacher = train_teacher(CharModel(n_chars, 160), train)
    print(f"teacher perplexity {perplexity(teacher, held_out):.2f}")
    student = CharModel(n_chars, 64)
    distil(student, teacher, train, held_out)
    print(f"student perplexity {perplexity(student, held_out):.2f}")


if __name__ == "__main__":
    main()
