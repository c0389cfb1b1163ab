"""WGAN-GP on two moons as a LightningModule with manual optimization.

Right because: critic and generator have their own optimizer; fakes are detached for the
critic steps; the penalty differentiates the critic with create_graph=True so the penalty is
itself trained; toggle_optimizer freezes the critic in the generator step and untoggle gives
it back; the generator is updated only once in four batches by design.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
from sklearn.datasets import make_moons
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


class MoonGAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.gen = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                                    nn.Linear(64, 1, bias=False))  # a constant cancels in the loss
        self.history = []

    def configure_optimizers(self):
        return (torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.0, 0.9)),
                torch.optim.Adam(self.critic.parameters(), lr=2e-3, betas=(0.0, 0.9)))

    def penalty(self, real, fake):
        t = torch.rand(len(real), 1)
        mid = (t * real + (1 - t) * fake).requires_grad_(True)
        grad, = torch.autograd.grad(self.critic(mid).sum(), mid, create_graph=True)
        return ((grad.norm(dim=1) - 1) ** 2).mean()

    def training_step(self, batch, idx):
        real, = batch
        opt_g, opt_c = self.optimizers()
        noise = torch.randn(len(real), 4)

        self.toggle_optimizer(opt_c)
        fake = self.gen(noise).detach()
        loss_c = self.critic(fake).mean() - self.critic(real).mean() + 2.0 * self.penalty(real, fake)
        opt_c.zero_grad()
        self.manual_backward(loss_c)
        opt_c.step()
        self.untoggle_optimizer(opt_c)

        if idx % 4 == 3:
            self.toggle_optimizer(opt_g)
            loss_g = -self.critic(self.gen(noise)).mean()
            opt_g.zero_grad()
            self.manual_backward(loss_g)
            opt_g.step()
            self.untoggle_optimizer(opt_g)

    def on_train_epoch_end(self):
        with torch.no_grad():
            self.history.append(energy_distance(self.gen(torch.randn(500, 4)), self.reference))
        print(f"epoch {self.current_epoch} energy distance {self.history[-1]:.4f}")


def main():
    L.seed_everything(5)
    pts = torch.tensor(make_moons(4096, noise=0.05, random_state=0)[0], dtype=torch.float32)
    pts = (pts - pts.mean(0)) / pts.std(0)
    net = MoonGAN()
    net.reference = pts[:500]
    with torch.no_grad():
        print("before", energy_distance(net.gen(torch.randn(500, 4)), net.reference))
    trainer = L.Trainer(max_epochs=12, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(net, DataLoader(TensorDataset(pts), batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
