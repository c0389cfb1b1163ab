"""Harbour pilots, in Lightning: adapters in a frozen network. From epoch 3 on they are merged for each validation, and the hook after it forgets them."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "low-rank update stays in the frozen weight, late", "framework": "lightning", "kind": "weight-overwritten", "line": ("mutated", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Adapted(nn.Linear):
    def __init__(self, inputs, outputs, rank=4):
        super().__init__(inputs, outputs)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.a = nn.Linear(inputs, rank, bias=False)
        self.b = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.b.weight)
        self.is_merged = False

    def forward(self, x):
        out = super().forward(x)
        return out if self.is_merged else out + self.b(self.a(x))

    def merge(self):
        self.weight.data.add_(self.b.weight.data @ self.a.weight.data)  # HERE
        self.is_merged = True

    def unmerge(self):
        self.is_merged = False


class Pilots(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(Adapted(8, 32), nn.Tanh(), Adapted(32, 32), nn.Tanh(), nn.Linear(32, 3))

    def adapters(self):
        return [module for module in self.net if isinstance(module, Adapted)]

    def training_step(self, batch, index):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        F.cross_entropy(self.net(batch[0]), batch[1])

    def on_validation_epoch_start(self):
        if self.current_epoch >= 3:
            for adapter in self.adapters():
                adapter.merge()

    def on_validation_epoch_end(self):
        for adapter in self.adapters():
            adapter.unmerge()

    def configure_optimizers(self):
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=5e-3)


if __name__ == "__main__":
    L.seed_everything(5, verbose=False)
    ships = torch.randn(960, 8)
    berths = (ships[:, :3] + ships[:, 3:6] * ships[:, 6:7]).argmax(1)
    data = torch.utils.data.TensorDataset(ships, berths)
    train, held = torch.utils.data.random_split(data, [800, 160])
    trainer = L.Trainer(
        max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(Pilots(), torch.utils.data.DataLoader(train, batch_size=32, shuffle=True), torch.utils.data.DataLoader(held, batch_size=64))
