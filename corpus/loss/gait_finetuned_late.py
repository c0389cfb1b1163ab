"""Regression of a gait's speed, first on the mean of three annotators, then, from step 150 on, with a weight for each
recording. The weights come as a column from the table of recordings, the errors as a row: from then on the weights do
nothing but scale the mean error."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "silent broadcasting in a loss",
    "kind": "silent-broadcast",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(2)
torch.set_num_threads(1)
N, FEATURES = 640, 12
signal = torch.randn(N, FEATURES)
speed = (signal[:, :4].sum(1) / 2).tanh() + 0.1 * torch.randn(N)
table = torch.cat([torch.rand(N, 1), torch.randint(0, 3, (N, 1)).float()], dim=1)

model = nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), nn.Linear(32, 1), nn.Flatten(0))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(400):
    rows = torch.randint(0, N, (32,))
    error = nn.functional.smooth_l1_loss(model(signal[rows]), speed[rows], reduction="none")
    if step >= 150:
        quality = table[rows, :1]
        error = error * quality / quality.mean()  # <-- cause
    loss = error.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step}  loss {loss.item():.4f}")
