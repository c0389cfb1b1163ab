"""Trainer with events; per-layer gradient norms are recorded from a later epoch on."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-not-used", "kind": "gradient-not-used", "clearing_marker": "CULPRIT", "step": 245,
    "set": "late_longer", "written": "2026-11-25",
}


class PatchTransformer(nn.Module):
    """Digits as 16 patches of 2x2."""

    def __init__(self, dim=112, depth=2):
        super().__init__()
        self.proj = nn.Linear(4, dim)
        self.pos = nn.Parameter(torch.randn(16, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, img):
        p = img.unfold(1, 2, 2).unfold(2, 2, 2).reshape(img.shape[0], 16, 4)
        h = self.proj(p) + self.pos
        for layer in self.layers:
            h = layer(h)
        return self.head(h.mean(1))


class GradRecorder:
    def __init__(self):
        self.rows = []

    def __call__(self, model):
        self.rows.append({n: p.grad.norm().item() for n, p in model.named_parameters() if p.grad is not None})
        model.zero_grad()  # CULPRIT


class Trainer:
    def __init__(self, model, x, y, bs=36):
        self.model, self.x, self.y, self.bs = model, x, y, bs
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.after_backward = []
        self.step, self.t0 = 0, time.time()

    def train_epoch(self):
        losses = []
        for idx in torch.randperm(len(self.x))[:49 * self.bs].split(self.bs):
            loss = F.cross_entropy(self.model(self.x[idx]), self.y[idx])
            self.opt.zero_grad()
            loss.backward()
            for fn in self.after_backward:
                fn(self.model)
            self.opt.step()
            losses.append(loss.item())
            self.step += 1
        ms = (time.time() - self.t0) / self.step * 1e3
        print(f"step {self.step} mean loss {sum(losses) / len(losses):.4f} {ms:.1f} ms/step")


torch.manual_seed(19)
d = load_digits()
trainer = Trainer(PatchTransformer(), torch.tensor(d.images, dtype=torch.float32) / 16.0, torch.tensor(d.target))
for epoch in range(8):                          # 49 steps per epoch
    if epoch == 5:
        trainer.after_backward.append(GradRecorder())
    trainer.train_epoch()
