"""Batches with NaN that leave no trace: they are left out before the forward, or the statistics of the layers are put back
after the loss was found to be NaN. A running mean of the losses takes only losses that are finite."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(5)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))
        self.register_buffer("mean_loss", torch.zeros(()))

    def forward(self, x):
        return self.body(x)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
skipped = 0
for step in range(260):
    x = torch.randn(32, 6)
    y = (x[:, 0] > x[:, 1]).long()
    if step % 40 == 35:
        x[3, 1] = float("nan")
    if step % 80 == 35 and x.isnan().any():
        skipped += 1
        continue
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss = nn.functional.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
        skipped += 1
        continue
    model.mean_loss.lerp_(loss.detach(), 0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"skipped {skipped}  mean loss {model.mean_loss.item():.3f}  finite {bool(model(torch.randn(4, 6)).isfinite().all())}")
