"""Ranges of activations are observed for a later conversion to int8. A batch from a broken file has NaN from step 180 on;
the loop does not train on it, but the observer has seen it: the scale of the conversion is NaN."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "NaN in buffers after a skipped batch",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "The observer averages the range of every batch, also of those with NaN that are skipped.",
    "symptom": "no error; the converted model returns NaN",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(9)
torch.set_num_threads(1)


class Observer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lowest", torch.zeros(()))
        self.register_buffer("highest", torch.zeros(()))

    def forward(self, x):
        if self.training:
            low, high = x.detach().aminmax()
            self.lowest += 0.05 * (low - self.lowest)  # <-- cause
            self.highest += 0.05 * (high - self.highest)  # <-- cause
        return x


net = nn.Sequential(Observer(), nn.Linear(10, 32), nn.ReLU(), Observer(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
skipped = 0
for step in range(320):
    x = torch.randn(48, 10)
    y = x[:, :3].argmax(1)
    if step >= 180 and step % 50 == 30:
        x[7, 2] = float("nan")
    loss = nn.functional.cross_entropy(net(x), y)
    if loss.isnan():
        skipped += 1
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 79:
        print(f"step {step}  loss {loss.item():.3f}  skipped {skipped}")
scale = max(abs(net[3].lowest.item()), net[3].highest.item()) / 127
print("scale of the activations:", scale)
