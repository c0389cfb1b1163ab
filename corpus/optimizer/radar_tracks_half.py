"""Radar tracks in half precision. The loop was moved from one framework to plain PyTorch; scaler.scale came along,
scaler.step did not."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "scaled gradients are used",
    "kind": "scaled-gradient-used",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
encoder = nn.GRU(3, 24, batch_first=True)
decoder = nn.Linear(24, 3)
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
for step in range(200):
    track = torch.randn(16, 1, 3) + torch.randn(16, 1, 3) * torch.linspace(0, 1, 10)[:, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ahead = decoder(encoder(track[:, :-1])[0])
        loss = nn.functional.smooth_l1_loss(ahead.float(), track[:, 1:])
    scaler.scale(loss).backward()
    optimizer.step()  # <-- cause
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
