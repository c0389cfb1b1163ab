"""Trains a bag-of-words classifier for short tickets with heavy dropout; after the first validation the regularisation is gone and the validation loss climbs.

Report: https://github.com/shubhamagarwal92/mmd/issues/14 (evaluate() uses model.eval() and after it there is no model.train(): once evaluate has been called, dropout is disabled)

Effect: from step 60 on the network trains without dropout: the training loss goes to 0 and the validation loss rises, with a mended copy it stays clearly lower.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "left-in-evaluation-mode", "line": ("cause", "OTHER"),
    "what": "evaluate() puts the model into eval mode and nothing puts it back into train mode, so dropout is off for the rest of training; call model.train() after the evaluation.",
    "set": "eighteenth", "written": "2026-11-27",
}

VOCAB, CLASSES, LENGTH = 400, 6, 14


def make_tickets(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    topical = torch.randint(0, 12, (n, LENGTH), generator=gen) + y[:, None] * 12
    common = torch.randint(CLASSES * 12, VOCAB, (n, LENGTH), generator=gen)
    x = torch.where(torch.rand(n, LENGTH, generator=gen) < 0.14, topical, common)
    return x, y


class TicketNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, 64, mode="mean")
        self.drop = nn.Dropout(0.6)
        self.fc1 = nn.Linear(64, 128)
        self.fc2 = nn.Linear(128, CLASSES)

    def forward(self, x):
        h = self.drop(self.emb(x))
        h = self.drop(F.relu(self.fc1(h)))
        return self.fc2(h)


def evaluate(model, x, y):
    model.eval()  # OTHER
    with torch.no_grad():
        logits = model(x)
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def train():
    torch.manual_seed(0)
    x, y = make_tickets(500, 1)
    vx, vy = make_tickets(1000, 2)
    model = TicketNet()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    model.train()
    for step in range(360):
        idx = torch.randint(0, len(x), (50,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 60 == 0:
            vloss, vacc = evaluate(model, vx, vy)  # CAUSE
            print(f"step {step + 1}: train {loss.item():.3f} val {vloss:.3f} acc {vacc:.3f}")


if __name__ == "__main__":
    train()
