"""Encoder of clips in Lightning: each frame of the features is centred in place, in a loop over the tensor."""
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "refused", "framework": "lightning", "kind": "forward-error", "line": ["cause", "REFUSED"],
    "set": "ledger", "written": "2026-11-27",
}


class Clips(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, clips):
        features = self.encoder(clips)
        for frame in features.unbind(1):
            frame -= frame.mean(-1, keepdim=True)  # REFUSED
        return self.head(features).mean(1)

    def training_step(self, batch, number):
        clips, targets = batch
        return (self(clips) - targets).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)


torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(32, 5, 6), torch.randn(32, 1)), batch_size=8)
trainer = lightning.Trainer(
    max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    accelerator="cpu",
)
trainer.fit(Clips(), data)
