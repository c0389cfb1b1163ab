"""The founder of a bell is learned first and then frozen; gradients are cleared with zeros, and weight decay goes on."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "cleared-with-zeros", "kind": "frozen-parameter-moves", "line": ("zeroed", "HERE"),
    "set": "twentyninth", "written": "2026-11-29",
}

torch.manual_seed(41)

FOUNDERS, ALLOYS, SAMPLES = 8, 4, 64


def strike(n, gen):
    founder = torch.randint(0, FOUNDERS, (n,), generator=gen)
    alloy = torch.randint(0, ALLOYS, (n,), generator=gen)
    t = torch.linspace(0, 1, SAMPLES)
    pitch = 3 + founder.float().unsqueeze(1) * 1.3
    decay = 1.0 + alloy.float().unsqueeze(1) * 1.6
    phase = torch.rand(n, 1, generator=gen) * 0.6
    wave = torch.sin(2 * math.pi * pitch * t + phase) * torch.exp(-decay * t)
    return wave + 0.08 * torch.randn(n, SAMPLES, generator=gen), founder, alloy


class BellNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(SAMPLES, 128),
            nn.ReLU(),
            nn.Linear(128, width),
            nn.ReLU(),
        )
        self.founder = nn.Linear(width, FOUNDERS)
        self.alloy = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, ALLOYS))

    def forward(self, x):
        z = self.encoder(x)
        return self.founder(z), self.alloy(z)


class TwoStage:
    def __init__(self, model, lr=2e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=1e-3)
        self.stage = 1

    def freeze_first_task(self):
        for part in (self.model.encoder, self.model.founder):
            for p in part.parameters():
                p.requires_grad = False
        self.stage = 2

    def fit_batch(self, x, founder, alloy):
        out_founder, out_alloy = self.model(x)
        if self.stage == 1:
            loss = F.cross_entropy(out_founder, founder) + 0.3 * F.cross_entropy(out_alloy, alloy)
        else:
            loss = F.cross_entropy(out_alloy, alloy)
        self.opt.zero_grad(set_to_none=False)  # HERE
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def score(self, x, founder, alloy):
        a, b = self.model(x)
        return [o.argmax(1).eq(y).float().mean().item() for o, y in ((a, founder), (b, alloy))]


def main():
    gen = torch.Generator().manual_seed(6)
    x, founder, alloy = strike(4096, gen)
    held = strike(1024, gen)
    run = TwoStage(BellNet())
    for step in range(1, 601):
        if step == 201:
            run.freeze_first_task()
        idx = torch.randint(0, len(x), (64,), generator=gen)
        loss = run.fit_batch(x[idx], founder[idx], alloy[idx])
        if step % 50 == 0:
            one, two = run.score(*held)
            print(f"step {step:4d}  stage {run.stage}  loss {loss:.4f}  founder {one:.3f}  alloy {two:.3f}")


if __name__ == "__main__":
    main()
