"""Value learning on sensor readings; readings and returns are both scaled by running moments.

Source: https://github.com/TA-Lib/ta-lib/issues/202 and https://github.com/meta-pytorch/tnt/issues/47
Plain PyTorch 2.13: silent; one sensor gets stuck at a constant reading, about a hundred steps later the loss is NaN.
"""
import torch
from torch import nn

EXPECT = {
    "class": "a", "kind": "nonfinite-forward-poisons-backward", "module": "obs_scale", "source_marker": "CULPRIT", "step": 405,
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Moments(nn.Module):
    """Exponential first and second moments of what passes through."""

    def __init__(self, width, rate=0.1):
        super().__init__()
        self.rate = rate
        self.register_buffer("first", torch.zeros(width))
        self.register_buffer("second", torch.ones(width))

    @torch.no_grad()
    def update(self, x):
        self.first.lerp_(x.mean(0), self.rate)
        self.second.lerp_(x.square().mean(0), self.rate)

    def spread(self):
        return (self.second - self.first.square()).sqrt()  # CULPRIT

    def forward(self, x):
        if self.training:
            self.update(x)
        return (x - self.first) / (self.spread() + 1e-2)


class Critic(nn.Module):
    def __init__(self, sensors):
        super().__init__()
        self.obs_scale, self.return_scale = Moments(sensors), Moments(1, 0.02)
        self.body = nn.Sequential(nn.Linear(sensors, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.value = nn.Linear(64, 1)

    def forward(self, obs, returns):
        value = self.value(self.body(self.obs_scale(obs)))
        return value, self.return_scale(returns)


class Plant:
    """Six sensors: temperatures in kelvin, pressures in hectopascal."""

    def __init__(self):
        self.level = torch.tensor([293.0, 310.0, 1013.0, 998.0, 5.0, 0.0])
        self.noise = torch.tensor([2.0, 4.0, 8.0, 6.0, 1.0, 1.0])
        self.mix = torch.tensor([0.3, -0.2, 0.5, 0.1, -0.4, 0.7])
        self.stuck = {}

    def read(self, count, step):
        z = torch.randn(count, 6)
        obs = self.level + self.noise * z
        if step >= 350:
            self.stuck.setdefault(2, 1016.37)
        for sensor, reading in self.stuck.items():
            obs[:, sensor] = reading
        return obs, (z * self.mix).sum(1, keepdim=True) * 3 + 20 + 0.1 * torch.randn(count, 1)


def main():
    torch.manual_seed(0)
    plant, critic = Plant(), Critic(6)
    opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for step in range(700):
        obs, returns = plant.read(64, step)
        value, wanted = critic(obs, returns)
        loss = nn.functional.smooth_l1_loss(value, wanted)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
