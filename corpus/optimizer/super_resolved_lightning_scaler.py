"""Super resolution with Lightning in manual optimization. The module has a GradScaler of its own; the generator's step
goes through it, the step of the edge network, which was added later, does not."""
import logging
import warnings

import lightning
import torch
import torch.nn as nn

EXPECT = {
    "class": "scaled gradients are used",
    "kind": "scaled-gradient-used",
    "framework": "lightning",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Upscaler(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.up = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))
        self.edges = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 3, padding=1))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)

    def training_step(self, batch, _):
        (large,) = batch
        small = nn.functional.avg_pool2d(large, 2)
        ups, edges = self.optimizers()
        loss = nn.functional.l1_loss(self.up(small), large)
        ups.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(ups.optimizer)
        border = (large[..., 1:] - large[..., :-1]).abs()
        edge_loss = nn.functional.mse_loss(self.edges(self.up(small).detach())[..., 1:], border)
        edges.zero_grad()
        self.scaler.scale(edge_loss).backward()
        edges.step()  # <-- cause
        self.scaler.update()

    def configure_optimizers(self):
        return torch.optim.Adam(self.up.parameters(), lr=1e-3), torch.optim.Adam(self.edges.parameters(), lr=1e-3)


pictures = torch.rand(256, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures), batch_size=16)
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Upscaler(), loader)
