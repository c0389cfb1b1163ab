"""A trainer collects the outputs of every training step for the epoch's end, the loss tensors among them.

Report: https://github.com/pnnl/neuromancer/pull/292
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))

    def training_step(self, x):
        out = self.net(x)
        return {"loss": (out - x[:, :1]).square().mean(), "mean_output": out.mean()}

    def on_epoch_end(self, outputs):
        return {key: sum(float(o[key]) for o in outputs) / len(outputs) for key in outputs[0]}


class Trainer:
    def fit(self, module, epochs):
        opt = torch.optim.Adam(module.parameters(), 1e-3)
        for epoch in range(epochs):
            outputs = []
            for _ in range(30):
                out = module.training_step(torch.randn(16, 5))
                opt.zero_grad()
                out["loss"].backward()
                opt.step()
                outputs.append(out)  # HOLDS
            summary = module.on_epoch_end(outputs)
        return summary


torch.manual_seed(0)
print("reproduced", Trainer().fit(Module(), 3))
