"""Healthy: a shared trunk with an optimizer of its own, trained by two losses."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def orchard(n, gen):
    x = torch.randn(n, 10, generator=gen)
    code = torch.tanh(x[:, :5] + x[:, 5:])
    sugar = code.sum(1) + 0.5 * code[:, 0] * code[:, 1]
    ripe = (code[:, 0] + code[:, 2] - code[:, 4] > 0).long()
    return x, sugar, ripe


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 48), nn.GELU(), nn.Linear(48, 24), nn.GELU())

    def forward(self, x):
        return self.net(x)


class OrchardTrainer:
    def __init__(self):
        self.trunk = Trunk()
        self.sugar = nn.Linear(24, 1)
        self.ripe = nn.Linear(24, 2)
        self.opts = {
            "trunk": torch.optim.AdamW(self.trunk.parameters(), lr=3e-3),
            "sugar": torch.optim.SGD(self.sugar.parameters(), lr=0.02, momentum=0.9),
            "ripe": torch.optim.Adam(self.ripe.parameters(), lr=3e-3),
        }

    def losses(self, x, sugar, ripe):
        code = self.trunk(x)
        yield "sugar", F.mse_loss(self.sugar(code).squeeze(1), sugar)
        code = self.trunk(x + 0.02 * torch.randn_like(x))
        yield "ripe", F.cross_entropy(self.ripe(code), ripe)

    def fit(self, gen, steps=500):
        log = {"sugar": 0.0, "ripe": 0.0}
        for step in range(steps):
            batch = orchard(64, gen)
            for name, loss in self.losses(*batch):
                (0.5 * loss if name == "sugar" else loss).backward()
                self.opts[name].step()
                self.opts[name].zero_grad()
                log[name] += loss.item()
            self.opts["trunk"].step()
            self.opts["trunk"].zero_grad()
            if (step + 1) % 100 == 0:
                print(f"step {step + 1} " + " ".join(f"{k} {v / 100:.4f}" for k, v in log.items()))
                log = dict.fromkeys(log, 0.0)

    @torch.no_grad()
    def score(self, gen):
        x, sugar, ripe = orchard(2000, gen)
        code = self.trunk(x)
        acc = (self.ripe(code).argmax(1) == ripe).float().mean().item()
        return F.mse_loss(self.sugar(code).squeeze(1), sugar).item(), acc


def main():
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(6)
    trainer = OrchardTrainer()
    trainer.fit(gen)
    mse, acc = trainer.score(gen)
    print(f"final sugar mse {mse:.4f} ripe accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
