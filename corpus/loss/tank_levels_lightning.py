"""Pumps of a tank in Lightning: the levels are updated in place, and the critic learns from a list of the same tensors."""
import random

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

EXPECT = {
    "kind": "next-states-equal",
    "line": ("returned", "HERE"),
    "plain": "every transition of a batch holds the same levels twice; with self.levels.clone() they differ",
    "set": "ledger",
    "written": "2026-11-29",
}
TANKS = 4


class Tanks:
    def __init__(self):
        self.levels = torch.full((TANKS,), 0.5)

    def observe(self):
        return self.levels, self.levels.mean().item()  # HERE

    def move(self, pump):
        self.levels[pump] += 0.2
        self.levels -= 0.05 * torch.rand(TANKS)
        self.levels.clamp_(0.0, 1.0)
        levels, mean = self.observe()
        return levels, -abs(mean - 0.8)


class Experience(IterableDataset):
    def __init__(self, moves):
        self.tanks, self.moves, self.memory = Tanks(), moves, []

    def __iter__(self):
        levels, _ = self.tanks.observe()
        for move in range(self.moves):
            following, reward = self.tanks.move(random.randrange(TANKS))
            self.memory.append((levels, torch.tensor(reward), following))
            levels = following
            if move >= 64:
                yield from random.sample(self.memory, 32)


class Critic(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.value = nn.Sequential(nn.Linear(TANKS, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        levels, reward, following = batch
        now = self.value(levels).squeeze(-1)
        goal = reward + 0.9 * self.value(following).squeeze(-1).detach()
        return nn.functional.mse_loss(now, goal)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    lightning.seed_everything(5, verbose=False)
    critic = Critic()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(critic, DataLoader(Experience(600), batch_size=32))
    with torch.no_grad():
        full, empty = critic.value(torch.ones(TANKS)), critic.value(torch.zeros(TANKS))
    print(f"value of full tanks {full.item():.2f}, of empty tanks {empty.item():.2f}")


if __name__ == "__main__":
    main()
