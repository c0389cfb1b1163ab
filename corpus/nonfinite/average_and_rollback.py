"""Weights are averaged with bias correction; every cycle starts from the average, and a loss spike rolls back to it.

Source: https://github.com/PaddlePaddle/Paddle/pull/17677 (bias-corrected weight average), the t = 0 hazard as in
        https://github.com/ooples/AiDotNet/pull/702
Plain PyTorch 2.13: silent; the loss is NaN from one step to the next and stays so.
"""
import torch
from torch import nn

EXPECT = {
    "class": "a", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 481,
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Averager:
    def __init__(self, model, decay=0.98):
        self.model, self.decay = model, decay
        self.begin()

    def begin(self):
        self.count = 0
        self.total = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}

    @torch.no_grad()
    def update(self):
        self.count += 1
        for name, p in self.model.named_parameters():
            self.total[name].lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def restore(self):
        correction = 1 - self.decay**self.count
        for name, p in self.model.named_parameters():
            p.copy_(self.total[name] / correction)  # CULPRIT


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 32, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 1))

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1]).squeeze(1)


def series(step):
    t = torch.rand(32, 1) * 6 + torch.arange(13) * 0.3
    wave = torch.stack([torch.sin(t), torch.cos(0.7 * t), torch.sin(1.9 * t)], -1)
    target = wave[:, -1].sum(1)
    if step in (222, 481):  # days with a wrong unit in the feed
        target = target * 40
    return wave[:, :-1] + 0.02 * torch.randn(32, 12, 3), target


def main():
    torch.manual_seed(0)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=160)
    average, usual = Averager(model), None
    for step in range(640):
        x, y = series(step)
        loss = nn.functional.mse_loss(model(x), y)
        level = loss.item()
        if usual is not None and step > 50 and level > 10 * usual:
            print(step, "spike, back to the average", flush=True)
            average.restore()
            continue
        usual = level if usual is None else 0.95 * usual + 0.05 * level
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        average.update()
        if schedule.T_cur == 0:
            average.restore()
            average.begin()
        if step % 40 == 0:
            print(step, f"{level:.4f}", flush=True)


if __name__ == "__main__":
    main()
