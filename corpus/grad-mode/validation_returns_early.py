"""Validation switches gradients off and on by hand; when the score is not better it returns before the second switch, and training goes on without a graph.

Report: https://github.com/nianticlabs/monodepth2/issues/24 (validation code that leaves "does not require grad" behind)
"""
import torch
from torch import nn

EXPECT = {
    "class": "grad-mode", "kind": "grad-mode-disabled", "cut_marker": "CUT",
    "set": "third", "written": "2026-11-22",
}


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 1))
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.best, self.step = float("inf"), 0

    def process_batch(self, inputs):
        depth = self.model(inputs)[:, 0]
        return (depth - inputs[:, :2].square().sum(1)).abs().mean()

    def val(self, batches):
        self.model.eval()
        torch.set_grad_enabled(False)  # CUT
        score = sum(self.process_batch(x).item() for x in batches) / len(batches)
        self.model.train()
        if score >= self.best:
            return score
        self.best = score
        self.checkpoint = {k: v.clone() for k, v in self.model.state_dict().items()}
        torch.set_grad_enabled(True)
        return score

    def run_epoch(self):
        for _ in range(12):
            loss = self.process_batch(torch.randn(16, 8))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1


torch.manual_seed(0)
trainer = Trainer()
held_out = [torch.randn(16, 8) for _ in range(3)]
for epoch in range(40):
    trainer.run_epoch()
    print(trainer.step, trainer.val(held_out))
