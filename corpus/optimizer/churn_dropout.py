"""Churn prediction on a small table; the validation every 60 steps leaves the model in eval mode, so from then on it trains without dropout and with fixed batch-norm statistics.

Report: https://github.com/wkentaro/pytorch-fcn/issues/57 (after validation inside the epoch the model is not put back into training mode)
"""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

EXPECT = {
    "framework": "plain", "kind": "left-in-evaluation-mode", "line": ("cause", "OTHER"),
    "what": "validate() puts the model into eval mode and nobody calls model.train() again, so after the first validation dropout is off and batch norm is frozen while training goes on",
    "set": "nineteenth", "written": "2026-11-27",
}


class Trainer:
    def __init__(self, model, optimizer, train, val, max_iter=360, val_every=60, batch_size=64):
        self.model = model
        self.optim = optimizer
        self.x, self.y = train
        self.vx, self.vy = val
        self.max_iter = max_iter
        self.val_every = val_every
        self.batch_size = batch_size
        self.iteration = 0

    def batches(self):
        while True:
            perm = torch.randperm(len(self.x))
            for i in range(0, len(perm) - self.batch_size + 1, self.batch_size):
                idx = perm[i:i + self.batch_size]
                yield self.x[idx], self.y[idx]

    @torch.no_grad()
    def validate(self):
        self.model.eval()  # OTHER
        out = self.model(self.vx).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(out, self.vy)
        acc = ((out > 0).float() == self.vy).float().mean()
        return loss.item(), acc.item()

    def fit(self):
        self.model.train()
        for self.iteration, (xb, yb) in enumerate(self.batches()):  # LOOP
            if self.iteration >= self.max_iter:
                break
            self.optim.zero_grad()
            out = self.model(xb).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(out, yb)
            loss.backward()
            self.optim.step()
            if self.iteration > 0 and self.iteration % self.val_every == 0:
                vl, va = self.validate()  # CAUSE
                print(f"iter {self.iteration:3d}  train {loss.item():.3f}  val loss {vl:.3f}  val acc {va:.3f}")


def main():
    torch.manual_seed(0)
    x, y = make_classification(1500, 40, n_informative=12, n_redundant=5, flip_y=0.15, class_sep=0.8, random_state=4)
    xt, xv, yt, yv = train_test_split(x.astype(np.float32), y.astype(np.float32), train_size=500, random_state=0)
    data = [torch.from_numpy(a) for a in (xt, yt, xv, yv)]
    model = nn.Sequential(
        nn.Linear(40, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.6),
        nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.6),
        nn.Linear(128, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    trainer = Trainer(model, optimizer, data[:2], data[2:])
    trainer.fit()
    print("final validation", [round(v, 3) for v in trainer.validate()])


if __name__ == "__main__":
    main()
