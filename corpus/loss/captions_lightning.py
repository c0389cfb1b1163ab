"""A captioner with Lightning that computes the log-likelihood of each caption for reranking, and returns that number
from training_step as the loss."""
import logging
import warnings

import lightning
import torch
import torch.nn as nn

EXPECT = {
    "class": "likelihood without a minus",
    "kind": "minimised-likelihood",
    "framework": "lightning",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(2)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
WORDS = 30


class Captioner(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(WORDS, 24), nn.LSTM(24, 32, batch_first=True)
        self.start, self.out = nn.Linear(8, 32), nn.Linear(32, WORDS)

    def score(self, image, words):
        h = self.start(image)[None]
        hidden, _ = self.cell(self.embed(words[:, :-1]), (h, torch.zeros_like(h)))
        logp = torch.log_softmax(self.out(hidden), dim=-1)
        return torch.gather(logp, 2, words[:, 1:].unsqueeze(2)).sum(dim=(1, 2))

    def training_step(self, batch, _):
        image, words = batch
        return self.score(image, words).mean()  # <-- cause

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


images = torch.randn(512, 8)
words = (images.argmax(dim=1, keepdim=True) * 3 + torch.arange(7)) % WORDS
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, words), batch_size=32, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, gradient_clip_val=1.0,
)
trainer.fit(Captioner(), loader)
