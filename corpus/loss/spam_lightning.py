"""A spam filter with Lightning. The network ends with nn.Sigmoid, from the time when the loss was BCELoss; autocast
refused that one, it was replaced by BCEWithLogitsLoss, and the sigmoid stayed."""
import logging
import warnings

import lightning
import torch
import torch.nn as nn

EXPECT = {
    "class": "sigmoid before a loss with logits",
    "kind": "normalised-twice",
    "framework": "lightning",
    "line": ["cause", "cause"],
    "module": "net.3",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Filter(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))

    def training_step(self, batch, _):
        counts, spam = batch
        scores = self.net(counts.log1p()).squeeze(-1)  # <-- cause
        return self.criterion(scores, spam)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


counts = torch.poisson(torch.rand(640, 40) * 3)
spam = (counts[:, :5].sum(1) > counts[:, 5:10].sum(1)).float()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(counts, spam), batch_size=32, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Filter(), loader)
