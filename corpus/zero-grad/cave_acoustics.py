"""Tones in caves, with Lightning. The context branch pools its map to one position and normalises it with one channel per group, so each value is normalised alone."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

EXPECT = {
    "class": "group norm over single values", "framework": "lightning", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "eighteen_classes", "written": "2026-11-29",
}


def echoes(n, seed):
    gen = torch.Generator().manual_seed(seed)
    room = torch.randint(0, 3, (n,), generator=gen)
    tone = torch.randint(0, 3, (n,), generator=gen)
    t = torch.arange(32).float()
    chirp = torch.sin((0.4 + 0.5 * tone.float())[:, None] * t + 6.28 * torch.rand(n, 1, generator=gen))
    sweep = torch.sin((0.4 + 0.5 * room.float())[:, None] * t + 6.28 * torch.rand(n, 1, generator=gen))
    a = chirp + 0.3 * torch.randn(n, 32, generator=gen)
    b = sweep + 0.3 * torch.randn(n, 32, generator=gen)
    return a[:, None], b[:, None], (tone + (room == 2).long()) % 3


class ContextGate(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.conv = nn.Conv1d(1, channels, 7, padding=3)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.norm = nn.GroupNorm(channels, channels)
        self.up = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, context):
        h = F.relu(self.conv(context))
        h = F.adaptive_avg_pool1d(h, 1)
        h = F.relu(self.norm(self.mix(h)))  # HERE
        return self.up(h).chunk(2, 1)


class EchoNet(L.LightningModule):
    def __init__(self, channels=24):
        super().__init__()
        self.front = nn.Conv1d(1, channels, 7, padding=3)
        self.gate = ContextGate(channels)
        self.body = nn.Conv1d(channels, 48, 5, stride=2, padding=2)
        self.head = nn.Sequential(nn.Linear(48 + 24, 48), nn.ReLU(), nn.Linear(48, 3))

    def forward(self, a, b):
        h = F.relu(self.front(a))
        gain, shift = self.gate(b)
        h = F.relu(self.body(h * (1 + gain) + shift)).mean(2)
        return self.head(torch.cat([h, gain.squeeze(2)], 1))

    def training_step(self, batch, batch_idx):
        a, b, label = batch
        loss = F.cross_entropy(self(a, b), label)
        if batch_idx % 40 == 39:
            print(f"epoch {self.current_epoch} batch {batch_idx + 1} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=4e-3)


def main():
    L.seed_everything(15, verbose=False)
    model = EchoNet()
    loader = DataLoader(TensorDataset(*echoes(3840, 1)), batch_size=48, shuffle=True)
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    a, b, label = echoes(900, 2)
    with torch.no_grad():
        out = model(a, b)
    print(f"final test loss {F.cross_entropy(out, label).item():.4f} accuracy {(out.argmax(1) == label).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
