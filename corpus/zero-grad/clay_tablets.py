"""Scribes of clay tablets, by low-rank adapters that are merged and restarted every 100 steps. The restart sets both factors to zero."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "both factors of adapters set to zero late", "framework": "plain", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "eighteen_classes", "written": "2026-11-29",
}

torch.manual_seed(91)
SIGNS, LENGTH = 20, 10
CYCLE = 100


class LowRank(nn.Module):
    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x):
        return self.base(x) + 2.0 * F.linear(F.linear(x, self.down), self.up)  # HERE

    @torch.no_grad()
    def restart(self):
        self.base.weight += 2.0 * self.up @ self.down
        nn.init.zeros_(self.down)
        nn.init.zeros_(self.up)


class Reader(nn.Module):
    """Reads a line of signs and names the scribe."""

    def __init__(self, width=48, scribes=6):
        super().__init__()
        self.embed = nn.Embedding(SIGNS, width // 4)
        self.embed.requires_grad_(False)
        self.first = LowRank(LENGTH * width // 4, width)
        self.second = LowRank(width, width)
        self.third = LowRank(width, width)
        self.head = LowRank(width, scribes)

    def forward(self, ids):
        h = F.gelu(self.first(self.embed(ids).flatten(1)))
        h = h + F.gelu(self.second(h))
        h = h + F.gelu(self.third(h))
        return self.head(h)


def tablets(habits, n, generator):
    scribe = torch.randint(0, len(habits), (n,), generator=generator)
    flat = habits[scribe].reshape(n * LENGTH, SIGNS)
    ids = torch.multinomial(flat, 1, generator=generator).view(n, LENGTH)
    return ids, scribe


def main():
    g = torch.Generator().manual_seed(7)
    habits = (1.5 * torch.randn(6, LENGTH, SIGNS, generator=g)).softmax(-1)
    ids_v, who_v = tablets(habits, 1500, g)
    model = Reader()
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for step in range(1, 501):
        ids, who = tablets(habits, 64, g)
        loss = F.cross_entropy(model(ids), who)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % CYCLE == 0:
            for module in model.modules():
                if isinstance(module, LowRank):
                    module.restart()
            opt.state.clear()
            with torch.no_grad():
                acc = (model(ids_v).argmax(1) == who_v).float().mean()
            print(f"step {step}  loss {loss.item():.3f}  valid acc {acc:.3f}")


if __name__ == "__main__":
    main()
