"""GRU intent classifier validated every 60 steps; after the first validation it trains on with dropout and batch norm in eval mode.
Report: https://github.com/joeynmt/joeynmt/issues/184 (after validating on the dev data the model stays in eval state, the rest of the epoch is trained without dropout)

From step 60 on dropout is off and the running statistics are frozen: the training loss goes to nearly 0 and the validation loss
rises, while a copy that returns to train mode ends with a clearly lower validation loss.
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "left-in-evaluation-mode", "line": ("cause", "CAUSE"),
    "what": "evaluate() leaves the model in eval mode and nothing calls model.train() again, so from the first validation on it trains without dropout and with frozen batch norm statistics; call model.train() after validating",
    "set": "twentysecond", "written": "2026-11-28",
}

VOCAB, CLASSES, LEN = 250, 8, 12


class IntentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.emb_drop = nn.Dropout(0.4)
        self.gru = nn.GRU(32, 48, batch_first=True, bidirectional=True)
        self.norm = nn.BatchNorm1d(96)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(96, CLASSES)

    def forward(self, tokens):
        h, _ = self.gru(self.emb_drop(self.emb(tokens)))
        return self.fc(self.drop(self.norm(h.max(dim=1).values)))


def utterances(n, gen):
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    x = torch.randint(0, VOCAB, (n, LEN), generator=gen)
    key = torch.rand(n, LEN, generator=gen) < 0.3
    x = torch.where(key, y[:, None] * 25 + torch.randint(0, 25, (n, LEN), generator=gen), x)
    flip = torch.rand(n, generator=gen) < 0.1
    return x, torch.where(flip, torch.randint(0, CLASSES, (n,), generator=gen), y)


def evaluate(model, x, y):
    model.eval()  # CAUSE
    with torch.no_grad():
        out = model(x)
    return nn.functional.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(4)
    x, y = utterances(700, gen)
    xv, yv = utterances(500, gen)
    model = IntentModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    model.train()  # TRAIN
    for epoch in range(20):
        for idx in torch.randperm(len(x), generator=gen).split(50):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 60 == 0:
                val_loss, val_acc = evaluate(model, xv, yv)  # CALL
                print(f"step {step}: train loss {loss.item():.3f} val loss {val_loss:.3f} val acc {val_acc:.3f}")


if __name__ == "__main__":
    main()
