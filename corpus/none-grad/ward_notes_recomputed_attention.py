"""Ward notes are sorted by urgency: pretrained word vectors are kept, and the attention block above them is recomputed."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "none-grad", "line": ("cut", "RECOMPUTED"), "set": "ledger", "written": "2026-11-29",
    "plain": "the loss stays near log(3); torch warns once: None of the inputs have requires_grad=True",
}

WORDS, LENGTH, WIDTH = 60, 10, 24


class Triage(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.words.weight.requires_grad_(False)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)

    def attend(self, vectors):
        return self.attention(self.query(vectors), vectors, vectors, need_weights=False)[0]

    def forward(self, notes):
        vectors = self.words(notes)
        context = checkpoint(self.attend, vectors, use_reentrant=True)  # RECOMPUTED
        return self.head(context.mean(1))


def notes(count):
    ids = torch.randint(0, WORDS, (count, LENGTH))
    return ids, (ids[:, :-1] < ids[:, 1:]).sum(1).sub(3).clamp(0, 2)


def accuracy(model):
    model.eval()
    with torch.no_grad():
        ids, urgency = notes(300)
        share = (model.head(model.attend(model.words(ids)).mean(1)).argmax(1) == urgency).float().mean().item()
    model.train()
    return share


def main():
    torch.manual_seed(0)
    model = Triage()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for step in range(60):
        ids, urgency = notes(32)
        loss = nn.functional.cross_entropy(model(ids), urgency)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy(model):.2f}")


if __name__ == "__main__":
    main()
