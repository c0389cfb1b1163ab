"""Lightning module with a callback that draws a saliency map of a fixed probe before every optimizer step.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/3657 and
        https://github.com/Lightning-AI/pytorch-lightning/issues/6665 (order of backward, zero_grad and the hooks)
Plain PyTorch 2.13: silent; the loss is flat from the step at which the callback starts to draw.
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "d", "kind": "gradient-not-used", "clearing_marker": "CLEARS", "step": 180, "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 5))
        self.trace = []

    def forward(self, image):
        return self.net(image)

    def training_step(self, batch, index):
        image, label = batch
        loss = nn.functional.cross_entropy(self(image), label)
        self.trace.append(loss.item())
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=0.005, momentum=0.0)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(opt, 400), "interval": "step"}}


class Saliency(L.Callback):
    def __init__(self, probe, after):
        self.probe, self.after, self.maps = probe, after, []

    def draw(self, module):
        image = self.probe.clone().requires_grad_()
        module(image).amax(1).sum().backward()
        module.zero_grad()  # CLEARS
        return image.grad.abs().amax((0, 1))

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step >= self.after:
            self.maps = self.maps[-9:] + [self.draw(module)]


def dataset(count=6400):
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(5, (count,), generator=generator)
    shape = torch.randn(5, 1, 12, 12, generator=generator)
    return TensorDataset(0.5 * shape[label] + torch.randn(count, 1, 12, 12, generator=generator), label)


def main():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    data, module = dataset(), Digits()
    saliency = Saliency(data.tensors[0][:4], after=180)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_steps=400, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[saliency],
    )
    trainer.fit(module, DataLoader(data, batch_size=16, shuffle=True))
    for at in range(0, 400, 40):
        part = module.trace[at : at + 40]
        print(at, f"{sum(part) / len(part):.4f}", flush=True)


if __name__ == "__main__":
    main()
