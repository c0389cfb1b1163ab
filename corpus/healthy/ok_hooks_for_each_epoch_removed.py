"""Hooks that come and go: every epoch registers hooks for its own log and removes them at its end, one hook is registered
once on each parameter, and the hooks of an evaluation are in a with block."""
import contextlib

import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(3)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for p in model.parameters():
    p.register_hook(lambda grad: grad.clamp(-1, 1))
outputs = []


@contextlib.contextmanager
def recorded(layers):
    handles = [layer.register_forward_hook(lambda m, i, o: outputs.append(o.detach().mean().item())) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


for epoch in range(16):
    handles = [layer.register_forward_hook(lambda m, i, o: None) for layer in model]
    handles += [p.register_hook(lambda grad: None) for p in model.parameters()]
    for _ in range(12):
        x = torch.randn(64, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for handle in handles:
        handle.remove()
    with recorded(model), torch.no_grad():
        model(torch.randn(64, 8))
print(f"loss {loss.item():.3f}, {len(outputs)} means")
