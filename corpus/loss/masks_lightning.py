"""Segmentation with Lightning and a Dice loss of the author's own. The logits are (B, 1, H, W), the masks (B, H, W), and
their product is (B, B, H, W): each prediction is compared with the masks of all images of the batch."""
import logging
import warnings

import lightning
import torch
import torch.nn as nn

EXPECT = {
    "class": "silent broadcasting in a loss",
    "kind": "silent-broadcast",
    "framework": "lightning",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Shapes(torch.utils.data.Dataset):
    def __init__(self, n):
        corners = torch.randint(0, 10, (n, 2))
        rows = torch.arange(16)
        inside = (rows >= corners[:, :1]) & (rows < corners[:, :1] + 6)
        beside = (rows >= corners[:, 1:]) & (rows < corners[:, 1:] + 6)
        self.masks = (inside[:, :, None] & beside[:, None, :]).float()
        self.images = self.masks[:, None] + 0.3 * torch.randn(n, 1, 16, 16)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


def soft_dice(probability, mask, eps=1.0):
    both = (probability * mask).sum(dim=(-2, -1))  # <-- cause
    either = probability.sum(dim=(-2, -1)) + mask.sum(dim=(-2, -1))  # <-- cause
    return 1 - ((2 * both + eps) / (either + eps)).mean()


class Segmenter(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def training_step(self, batch, _):
        image, mask = batch
        loss = soft_dice(self.net(image).sigmoid(), mask)
        self.log("dice", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Segmenter(), torch.utils.data.DataLoader(Shapes(160), batch_size=16))
