"""From step 100 on every validation copies the averaged weights into the live model and never puts the trained weights
back, which throws training back to the slow average each time.

Report: PKU-YuanGroup/Open-Sora-Plan issue #186; harubaru/waifu-diffusion pull #31 (restore non-EMA weights)
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "kind": "weights-put-back",
    "line": ("mutated", "HERE"),
    "plain": "final test mse 0.510, training loss jumps from 0.04 to 0.40 at step 100; 0.0073 when the trained weights are put back after validation",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def tracks(n, gen, length=16):
    heading = torch.rand(n, generator=gen) * 6.28
    turn = torch.randn(n, generator=gen) * 0.25
    t = torch.arange(length).float()
    ang = heading[:, None] + turn[:, None] * t
    step = torch.stack([ang.cos(), ang.sin()], -1) + 0.05 * torch.randn(n, length, 2, generator=gen)
    return step[:, :-4], step[:, -4:].reshape(n, -1)


class TrackFormer(nn.Module):
    def __init__(self, d=32, length=12):
        super().__init__()
        self.inp = nn.Linear(2, d)
        self.pos = nn.Parameter(torch.randn(length, d) * 0.1)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d * length, 8)

    def forward(self, x):
        return self.out(self.enc(self.inp(x) + self.pos).flatten(1))


class TrackTrainer:
    def __init__(self, gen):
        self.gen = gen
        self.model = TrackFormer()
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.val = tracks(500, gen)

    @torch.no_grad()
    def validate(self):
        self.model.load_state_dict(self.ema.module.state_dict())  # HERE
        self.model.eval()
        err = F.mse_loss(self.model(self.val[0]), self.val[1]).item()
        self.model.train()
        return err

    def fit(self, steps=400, val_from=100, val_every=10):
        running = []
        for step in range(1, steps + 1):
            x, y = tracks(48, self.gen)
            loss = F.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.ema.update_parameters(self.model)
            running.append(loss.item())
            if step >= val_from and step % val_every == 0:
                err = self.validate()
                if step % 50 == 0:
                    print(f"step {step:4d} train {sum(running[-20:]) / 20:.4f} ema val {err:.4f}")


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(51)
    trainer = TrackTrainer(gen)
    trainer.fit()
    x, y = tracks(1000, gen)
    with torch.no_grad():
        print(f"final test mse {F.mse_loss(trainer.model(x), y).item():.4f}")


if __name__ == "__main__":
    main()
