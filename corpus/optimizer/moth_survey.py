"""For the second season the head is replaced by a wider one after the optimizer was made; the optimizer still holds the
old head's parameters, so the new head stays at its copied and random values from step 150 on.

Report: github.com/huggingface/transformers pull request 3532 (parameters replaced after they were given to the
optimizer); continual-learning head growth is the same mistake
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("optimizer", "HERE"),
    "plain": "new species 0.237 (loss 1.58) as it is; 0.886 (loss 0.58) with the new head given to the optimizer",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(41)
FIRST, SECOND = list(range(5)), list(range(5, 12))
SEASON = 150


class MothNet(nn.Module):
    def __init__(self, inputs=30, width=48, species=5):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, species)

    def forward(self, x):
        return self.head(self.body(x))

    def grow(self, extra):
        old = self.head
        new = nn.Linear(old.in_features, old.out_features + extra)
        nn.init.normal_(new.weight, std=0.01)
        nn.init.zeros_(new.bias)
        with torch.no_grad():
            new.weight[: old.out_features] = old.weight
            new.bias[: old.out_features] = old.bias
        self.head = new


def trap_nights(centres, species, n, generator):
    species = torch.tensor(species)
    y = species[torch.randint(0, len(species), (n,), generator=generator)]
    x = centres[y] + 1.0 * torch.randn(n, centres.shape[1], generator=generator)
    return x, y


@torch.no_grad()
def accuracy(model, centres, species):
    model.eval()
    x, y = trap_nights(centres, species, 800, torch.Generator().manual_seed(99))
    out = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return out


def main():
    g = torch.Generator().manual_seed(3)
    centres = 0.6 * torch.randn(12, 30, generator=g)
    model = MothNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)  # HERE
    for step in range(SEASON):
        x, y = trap_nights(centres, FIRST, 32, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"first season: loss {loss.item():.3f}  acc {accuracy(model, centres, FIRST):.3f}")

    model.grow(len(SECOND))
    for step in range(SEASON, SEASON + 250):
        x, y = trap_nights(centres, FIRST + SECOND, 48, g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
    print(
        f"second season: first species {accuracy(model, centres, FIRST):.3f}"
        f"  new species {accuracy(model, centres, SECOND):.3f}"
    )


if __name__ == "__main__":
    main()
