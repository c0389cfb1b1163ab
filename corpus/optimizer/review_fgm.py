"""Sentiment LSTM with FGM adversarial training on the embeddings; the perturbation is never taken back and the embeddings drift up the loss.
Report: https://github.com/PaddlePaddle/PaddleNLP/issues/723 (FGM code posted there stores the parameter itself as backup; the usual code stores param.data.clone())

The backup shares memory with the weight that attack() changes in place, so restore() restores nothing: every step adds a
vector of norm eps along the ascent direction. Test accuracy and clean loss end clearly worse than with a cloned backup.
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "weight-overwritten", "line": ("mutated", "ADD"),
    "what": "the FGM backup is a reference to the same storage that attack() then perturbs in place, so restore() does nothing and the adversarial perturbation stays in the embeddings; back up param.data.clone()",
    "set": "twentysecond", "written": "2026-11-28",
}


class FGM:
    def __init__(self, model, epsilon=1.0):
        self.model, self.epsilon = model, epsilon
        self.backup = {}

    def attack(self, emb_name="embed."):
        for name, param in self.model.named_parameters():
            if param.requires_grad and emb_name in name:
                self.backup[name] = param.data  # CAUSE
                norm = torch.norm(param.grad)
                if norm != 0 and not torch.isnan(norm):
                    param.data.add_(self.epsilon * param.grad / norm)  # ADD

    def restore(self, emb_name="embed."):
        for name, param in self.model.named_parameters():
            if param.requires_grad and emb_name in name:
                param.data = self.backup[name]
        self.backup = {}


class Sentiment(nn.Module):
    def __init__(self, vocab=400):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.lstm = nn.LSTM(24, 32, batch_first=True)
        self.fc = nn.Linear(32, 2)

    def forward(self, tokens):
        out, _ = self.lstm(self.embed(tokens))
        return self.fc(out.mean(dim=1))


def reviews(n, gen):
    y = torch.randint(0, 2, (n,), generator=gen)
    x = torch.randint(100, 400, (n, 16), generator=gen)
    hot = torch.rand(n, 16, generator=gen) < 0.25
    words = y[:, None] * 50 + torch.randint(0, 50, (n, 16), generator=gen)
    return torch.where(hot, words, x), y


def train():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    (x, y), (xt, yt) = reviews(1500, gen), reviews(500, gen)
    model = Sentiment()
    fgm = FGM(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(300):
        idx = torch.randint(0, len(x), (32,), generator=gen)
        loss = criterion(model(x[idx]), y[idx])
        loss.backward()
        fgm.attack()
        loss_adv = criterion(model(x[idx]), y[idx])
        loss_adv.backward()
        fgm.restore()
        optimizer.step()
        optimizer.zero_grad()
        if step % 60 == 59:
            with torch.no_grad():
                out = model(xt)
                print(f"step {step + 1} loss {loss.item():.3f} adv {loss_adv.item():.3f} "
                      f"test loss {criterion(out, yt).item():.3f} acc {(out.argmax(1) == yt).float().mean().item():.3f}")


train()
