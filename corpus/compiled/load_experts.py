"""Mixture of experts that forecasts power load, with a soft and then a hard gate.

Story: training starts with a softmax over the experts; after 200 steps the config switches
to top-1 routing to be cheap at inference.  The experts go on learning but the router stays
where it was.  The forward is wrapped by torch.compile.
Based on a public report: labmlai/annotated_deep_learning_paper_implementations#95 on the
gradient of the router in a switch layer, and forum questions on argmax gates.
"""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "x", "kind": "none-grad", "parameters": ["router.weight", "router.bias"], "cut_marker": "CUT", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}


@dataclass
class Config:
    window: int = 24
    experts: int = 4
    hidden: int = 32
    steps: int = 500
    hard_from: int = 200
    batch: int = 128
    lr: float = 3e-3


class LoadForecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.router = nn.Linear(cfg.window, cfg.experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(cfg.window, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, 1))
            for _ in range(cfg.experts)
        )

    def gate(self, x, hard):
        scores = self.router(x)
        if hard:
            return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(x.dtype)  # CUT
        return scores.softmax(-1)

    def forward(self, x, hard):
        outputs = torch.cat([expert(x) for expert in self.experts], dim=-1)
        return (self.gate(x, hard) * outputs).sum(-1)


class LoadData:
    """Four kinds of consumers with another daily shape each."""

    def __init__(self, cfg, seed=1):
        self.cfg, self.g = cfg, torch.Generator().manual_seed(seed)
        self.mix = torch.randn(4, cfg.window, generator=self.g) / cfg.window ** 0.5
        self.level = torch.tensor([-3.0, -1.0, 1.0, 3.0])

    def sample(self):
        kind = torch.randint(4, (self.cfg.batch,), generator=self.g)
        x = torch.randn(self.cfg.batch, self.cfg.window, generator=self.g)
        x[:, :6] += self.level[kind].unsqueeze(1)
        y = (x * self.mix[kind]).sum(1).tanh() * 2 + 0.1 * torch.randn(self.cfg.batch, generator=self.g)
        return x, y


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        self.data = LoadData(cfg)
        self.model = LoadForecaster(cfg)
        self.forward = torch.compile(self.model, backend="eager")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.steps)

    def step(self, i):
        x, y = self.data.sample()
        loss = F.mse_loss(self.forward(x, hard=i >= self.cfg.hard_from), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def run(self):
        for i in range(self.cfg.steps):
            loss = self.step(i)
            if i % 50 == 0:
                mode = "hard" if i >= self.cfg.hard_from else "soft"
                print(f"step {i} [{mode}] mse {loss:.4f}")


def main():
    torch.manual_seed(5)
    Experiment(Config()).run()


if __name__ == "__main__":
    main()
