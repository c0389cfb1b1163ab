"""A batch with a broken row gives a NaN loss. The loop skips it, and puts back the running statistics of before."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(4)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
skipped = 0
for step in range(200):
    x = torch.randn(32, 6)
    y = x.sum(1, keepdim=True)
    if step % 16 == 5:
        x[3] = float("nan")
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss = (model(x) - y).square().mean()
    if not loss.isfinite():
        skipped += 1
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"skipped {skipped}, loss {loss.item():.3f}, eval {model.eval()(torch.ones(1, 6)).item():.2f}")
