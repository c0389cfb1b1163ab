"""Spellings of a dialect, by low-rank layers. Each evaluation folds the update into the frozen weight, and the way back to train mode only resets the flag (microsoft/LoRA issue 34)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "low-rank update stays in the frozen weight", "framework": "plain", "kind": "weight-overwritten", "line": ("mutated", "HERE"),
    "set": "twentyeighth", "written": "2026-11-29",
}


SYLLABLES = 24
LENGTH = 6
CLASSES = 10


class LowRank(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank
        self.merged = False

    def delta(self):
        return self.scale * (self.up @ self.down)

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if not mode and not self.merged:
            self.base.weight += self.delta()  # HERE
            self.merged = True
        elif mode and self.merged:
            self.merged = False
        return self

    def forward(self, x):
        out = self.base(x)
        if not self.merged:
            out = out + self.scale * F.linear(F.linear(x, self.down), self.up)
        return out


class Speller(nn.Module):
    def __init__(self, dim=24, width=96):
        super().__init__()
        self.embed = nn.Embedding(SYLLABLES, dim)
        self.first = nn.Linear(dim * LENGTH, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, CLASSES)
        self.drop = nn.Dropout(0.1)

    def forward(self, words):
        h = self.embed(words).flatten(1)
        h = self.drop(F.relu(self.first(h)))
        h = self.drop(F.relu(self.second(h)))
        return self.out(h)


def dialect(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(LENGTH, SYLLABLES, CLASSES, generator=g)


def words(n, rule, gen):
    w = torch.randint(0, SYLLABLES, (n, LENGTH), generator=gen)
    score = rule[torch.arange(LENGTH), w].sum(dim=1)
    return w, score.argmax(dim=-1)


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        acc = (model(data[0]).argmax(-1) == data[1]).float().mean().item()
    model.train()
    return acc


def run(model, rule, params, steps, lr, held, every, start, tag):
    gen = torch.Generator().manual_seed(41)
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.01)
    model.train()
    mean = 0.0
    for step in range(1, steps + 1):
        w, y = words(128, rule, gen)
        loss = F.cross_entropy(model(w), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean += loss.item()
        if step % every == 0:
            line = f"{tag} step {step:4d} mean loss {mean / every:.3f}"
            if step >= start:
                line += f" held-out {accuracy(model, held):.3f}"
            print(line)
            mean = 0.0


def main():
    torch.manual_seed(19)
    gen = torch.Generator().manual_seed(20)
    standard = dialect(1)
    northern = 0.8 * standard + 0.6 * dialect(2)
    model = Speller()
    run(model, standard, model.parameters(), 800, 2e-3, words(1000, standard, gen), 200, 800, "standard")

    for p in model.parameters():
        p.requires_grad_(False)
    model.first = LowRank(model.first, rank=8)
    model.second = LowRank(model.second, rank=8)
    tuned = [p for p in model.parameters() if p.requires_grad]
    run(model, northern, tuned, 800, 2e-3, words(1000, northern, gen), 40, 200, "northern")


if __name__ == "__main__":
    main()
