"""Accelerate training of a bag-of-words ticket classifier with gradient accumulation; the gradients are eight times too small.
Report: https://github.com/huggingface/transformers/issues/26312 (accelerator.backward already divides by gradient_accumulation_steps; also accelerate issue 3533 "double divide")

The loss is divided by hand and again in accelerator.backward. With SGD the effective rate is 1/8: after 120 updates the
validation loss is well above that of a copy without the division.
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "loss-divided-twice", "line": ("cause", "CAUSE"),
    "what": "the loss is divided by the number of accumulation steps by hand although accelerator.backward already does it, so the gradients are 8 times too small; drop the division",
    "set": "twentysecond", "written": "2026-11-28",
}

ACCUM = 8
N_WORDS, N_TOPICS, LENGTH = 300, 6, 20


def make_tickets(n, gen):
    topics = torch.randint(0, N_TOPICS, (n,), generator=gen)
    own = topics[:, None] * 40 + torch.randint(0, 40, (n, LENGTH), generator=gen)
    noise = torch.randint(0, N_WORDS, (n, LENGTH), generator=gen)
    keep = torch.rand(n, LENGTH, generator=gen) < 0.3
    return torch.where(keep, own, noise), topics


class TicketNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(N_WORDS, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, N_TOPICS))

    def forward(self, tokens):
        return self.mlp(self.bag(tokens))


def validate(accelerator, model, loader):
    model.eval()
    total, right, count = 0.0, 0, 0
    with torch.no_grad():
        for tokens, topics in loader:
            out = model(tokens)
            total += nn.functional.cross_entropy(out, topics, reduction="sum").item()
            right += (out.argmax(1) == topics).sum().item()
            count += len(topics)
    model.train()
    accelerator.print(f"  val loss {total / count:.3f} acc {right / count:.3f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
    train = DataLoader(TensorDataset(*make_tickets(2560, gen)), batch_size=16, shuffle=True)
    val = DataLoader(TensorDataset(*make_tickets(400, gen)), batch_size=200)
    model = TicketNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)

    updates = 0
    for epoch in range(6):
        for tokens, topics in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(tokens), topics)
                loss = loss / accelerator.gradient_accumulation_steps  # CAUSE
                accelerator.backward(loss)  # BACKWARD
                optimizer.step()
                optimizer.zero_grad()
            updates += accelerator.sync_gradients
        accelerator.print(f"epoch {epoch} updates {updates}")
        validate(accelerator, model, val)


if __name__ == "__main__":
    main()
