"""A profiler with full backward hooks is switched on in mid-run; the training step divides the logits in place, which the hook's view forbids.

Report: https://github.com/jacobgil/pytorch-grad-cam/pull/183 (also f-dangel/singd issue 56)
"""
import torch
from torch import nn

EXPECT = {
    "class": "hook", "kind": "hook-inplace-conflict", "hook_marker": "HOOK",
    "set": "second", "written": "2026-11-22",
}


class Profiler:
    def __init__(self):
        self.seen, self.handles = {}, []

    def attach(self, model):
        for name, module in model.named_children():
            def note(module, grad_input, grad_output, name=name):
                self.seen[name] = grad_output[0].abs().mean().item()

            self.handles.append(module.register_full_backward_hook(note))  # HOOK


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.trunk(x).relu())


torch.manual_seed(0)
model, profiler = Model(), Profiler()
opt = torch.optim.SGD(model.parameters(), 1e-2)
for step in range(50):
    if step == 35:
        profiler.attach(model)
    logits = model(torch.randn(8, 6))
    logits /= 0.7  # temperature
    loss = nn.functional.cross_entropy(logits, torch.arange(8) % 4)
    opt.zero_grad()
    loss.backward()
    opt.step()
