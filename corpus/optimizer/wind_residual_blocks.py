"""Wind power from weather, with Lightning: five residual blocks are made as one that is repeated, by a function that builds the trunk."""
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "module-repeated", "framework": "lightning", "kind": "module-repeated", "line": ("cause", "REPEATS"),
    "set": "ledger", "written": "2026-11-27",
}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.back(torch.relu(self.hidden(self.norm(x))))


def trunk(inputs, width, depth):
    block = Residual(width)
    parts = [nn.Linear(inputs, width)]
    parts += [block] * depth  # REPEATS
    parts.append(nn.Linear(width, 1))
    return nn.Sequential(*parts)


class WindPower(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = trunk(6, 24, depth=5)

    def training_step(self, batch, index):
        weather, power = batch
        return nn.functional.smooth_l1_loss(self.network(weather).squeeze(1), power)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    pl.seed_everything(3)
    weather = torch.randn(640, 6)
    speed = (weather[:, 0] ** 2 + weather[:, 1] ** 2).sqrt()
    power = torch.sigmoid(3 * (speed - 1.2)) * (1 + 0.1 * weather[:, 2])
    loader = DataLoader(TensorDataset(weather, power), batch_size=32, shuffle=True)
    trainer = pl.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(WindPower(), loader)


if __name__ == "__main__":
    main()
