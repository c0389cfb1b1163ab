"""Lightning regression of a pressure signal with rare huge readings; the gradient clipping in the module has no effect and the weights are thrown about.

Report: https://github.com/simchowitzlabpublic/nano-world-model/pull/22 (clip_grad_norm_ was called inside training_step, before backward runs, so the gradient that the optimizer used was never clipped)

Effect: the gradient norm at the optimizer step is far above the clip value of 1, and the validation error ends much higher than with the Trainer's gradient_clip_val=1.0.
"""
import logging
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "The clipping stands in training_step, before backward has run, so it clips no gradient that is used; clip in configure_gradient_clipping or with Trainer(gradient_clip_val=...).",
    "set": "eighteenth", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def readings(n, seed, spikes):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin())
    if spikes:
        y = torch.where(torch.rand(n, 1, generator=g) < 0.02, y + 60.0, y)
    return TensorDataset(x, y)


class Pressure(L.LightningModule):
    def __init__(self, lr=0.05):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.norms = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # CAUSE
        return loss

    def on_before_optimizer_step(self, optimizer):
        norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm().item()
        self.norms.append(norm)
        if self.global_step % 50 == 0:
            print(f"step {self.global_step} gradient norm {norm:.2f}")

    def validation_step(self, batch, batch_idx):
        x, y = batch
        print(f"validation mse {F.mse_loss(self.net(x), y).item():.3f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main():
    L.seed_everything(0, verbose=False)
    model = Pressure()
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(model, DataLoader(readings(2400, 1, True), batch_size=32, shuffle=True),
                DataLoader(readings(800, 2, False), batch_size=800))
    print(f"largest gradient norm used {max(model.norms):.1f}")


if __name__ == "__main__":
    main()
