"""A pointer that learns to hit a target, in Lightning. It imitates first; from epoch 4 on its own shots are scored, and they still have their graph."""
import lightning as L
import torch
from torch import nn
from torch.distributions import Independent, Normal

EXPECT = {
    "class": "log-probability of a sample with its graph, late", "framework": "lightning", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.spread = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        mean = self.trunk(x)
        return Independent(Normal(mean, self.spread.exp().expand_as(mean)), 1)

    def shoot(self, where):
        return where.rsample()  # HERE


class Training(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.pointer = Pointer()

    def training_step(self, batch, index):
        (x,) = batch
        where, goal = self.pointer(x), x[:, :2] - x[:, 2:]
        if self.current_epoch < 4:
            return -where.log_prob(goal).mean()
        shot = self.pointer.shoot(where)
        reward = -(shot.detach() - goal).norm(dim=1)
        return -(where.log_prob(shot) * (reward - reward.mean())).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


if __name__ == "__main__":
    L.seed_everything(3, verbose=False)
    data = torch.utils.data.TensorDataset(torch.randn(640, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    trainer = L.Trainer(
        max_epochs=12, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Training(), loader)
