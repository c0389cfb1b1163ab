"""VQ-VAE on the bundled digits with a straight-through quantiser.

Right because: quantisation passes the decoder gradient unchanged to the encoder
(z + (q - z).detach()), the codebook learns from its own loss against detached encodings,
the encoder gets the commitment loss against detached codes, and codes that nobody used for
a while are re-seeded under no_grad (their Adam moments are cleared with them).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

CODES, DIM = 32, 8


class Quantiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, DIM) * 0.3)
        self.register_buffer("idle", torch.zeros(CODES, dtype=torch.long))

    def forward(self, z):
        flat = z.reshape(-1, DIM)
        with torch.no_grad():
            idx = torch.cdist(flat, self.codes).argmin(1)
            if self.training:
                used = torch.bincount(idx, minlength=CODES) > 0
                self.idle.add_(1)
                self.idle[used] = 0
        q = self.codes[idx].view_as(z)
        codebook_loss = F.mse_loss(q, z.detach())
        commitment = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), codebook_loss + 0.25 * commitment, idx

    @torch.no_grad()
    def revive(self, z, opt, patience=25):
        dead = (self.idle > patience).nonzero().flatten()
        if len(dead) == 0:
            return 0
        flat = z.detach().reshape(-1, DIM)
        self.codes[dead] = flat[torch.randint(0, len(flat), (len(dead),))]
        self.idle[dead] = 0
        state = opt.state.get(self.codes)
        if state:
            state["exp_avg"][dead] = 0
            state["exp_avg_sq"][dead] = 0
        return len(dead)


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 24, 3, stride=2, padding=1), nn.ReLU(),
                                 nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, DIM, 1))
        self.quant = Quantiser()
        self.dec = nn.Sequential(nn.Conv2d(DIM, 24, 3, padding=1), nn.ReLU(),
                                 nn.ConvTranspose2d(24, 16, 4, stride=2, padding=1), nn.ReLU(),
                                 nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        zq, vq_loss, idx = self.quant(z)
        return self.dec(zq.permute(0, 3, 1, 2)), vq_loss, z, idx


def main():
    torch.manual_seed(3)
    data = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
    train, held = data[:1500], data[1500:]
    net = VQVAE()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    revived = 0
    for step in range(450):
        x = train[torch.randint(0, len(train), (64,))]
        recon, vq_loss, z, _ = net(x)
        loss = F.mse_loss(recon, x) + vq_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        revived += net.quant.revive(z, opt)
        if step % 90 == 0 or step == 449:
            net.eval()
            with torch.inference_mode():
                r, _, _, idx = net(held)
                print(f"step {step} train {loss.item():.4f} held-out mse {F.mse_loss(r, held).item():.4f} "
                      f"codes in use {idx.unique().numel()} revived {revived}")
            net.train()


if __name__ == "__main__":
    main()
