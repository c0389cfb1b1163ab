"""A toy vocoder with generator and discriminator under Lightning's manual optimization; the learning rate decay never happens.

Report: https://github.com/voicepaw/so-vits-svc-fork/pull/291 (under manual optimization step() has to be called on
each of the learning rate schedulers, lr_decay did not work).
Effect: the learning rate printed at every epoch end stays at 1e-2 although ExponentialLR(gamma=0.5) was returned from
configure_optimizers; the spectral error on held-out frames ends clearly higher than with the schedulers stepped.
Step below: both optimizers counted, 36 batches an epoch.
"""
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")

EXPECT = {
    "framework": "lightning", "kind": "schedule-never-stepped", "line": ("stepped", "OTHER"),
    "what": "with automatic_optimization=False Lightning does not step the schedulers returned by configure_optimizers and the module never does it either, so the learning rate never decays; call sch.step() at the end of each epoch",
    "set": "twentyfirst", "written": "2026-11-27",
}


class Vocoder(L.LightningModule):
    def __init__(self, n_mel=12, n_wave=48):
        super().__init__()
        self.automatic_optimization = False
        self.gen = nn.Sequential(nn.Linear(n_mel, 96), nn.LeakyReLU(0.1), nn.Linear(96, 96), nn.LeakyReLU(0.1),
                                 nn.Linear(96, n_wave))
        self.disc = nn.Sequential(nn.Linear(n_wave, 48), nn.LeakyReLU(0.1), nn.Linear(48, 1))

    def training_step(self, batch, batch_idx):
        mel, wave = batch
        opt_g, opt_d = self.optimizers()
        fake = self.gen(mel)

        loss_d = ((self.disc(wave) - 1) ** 2).mean() + (self.disc(fake.detach()) ** 2).mean()
        opt_d.zero_grad()
        self.manual_backward(loss_d)
        opt_d.step()

        self.toggle_optimizer(opt_g)
        loss_rec = F.l1_loss(fake, wave)
        loss_g = 10.0 * loss_rec + 0.05 * ((self.disc(fake) - 1) ** 2).mean()
        opt_g.zero_grad()
        self.manual_backward(loss_g)
        opt_g.step()  # OTHER
        self.untoggle_optimizer(opt_g)

    def on_train_epoch_end(self):
        lr = self.optimizers()[0].param_groups[0]["lr"]
        with torch.no_grad():
            err = F.l1_loss(self.gen(MEL_V), WAVE_V).item()
        print(f"epoch {self.current_epoch} lr {lr:.5f} held-out L1 {err:.4f}")

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-2, betas=(0.8, 0.99))
        opt_d = torch.optim.Adam(self.disc.parameters(), lr=1e-3, betas=(0.8, 0.99))
        sch_g = torch.optim.lr_scheduler.ExponentialLR(opt_g, gamma=0.5)
        sch_d = torch.optim.lr_scheduler.ExponentialLR(opt_d, gamma=0.5)
        return [opt_g, opt_d], [sch_g, sch_d]  # CAUSE


def make_frames(n, gen):
    mel = torch.randn(n, 12, generator=gen)
    t = torch.linspace(0, 1, 48)
    basis = torch.stack([torch.sin(2 * torch.pi * (k + 1) * t) for k in range(12)])
    return mel, torch.tanh(mel @ basis / 3)


L.seed_everything(0, verbose=False)
g = torch.Generator().manual_seed(1)
MEL, WAVE = make_frames(36 * 32, g)
MEL_V, WAVE_V = make_frames(400, g)
trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Vocoder(), DataLoader(TensorDataset(MEL, WAVE), batch_size=32, shuffle=True))
