"""Prompt learning: class embeddings are computed once per epoch with their graph and used in every batch.

Report: https://github.com/keras-team/keras-core/pull/727 (a tensor computed once outside of the step)
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
prompt = nn.Parameter(torch.randn(4, 6))
text, image = nn.Linear(6, 8), nn.Linear(10, 8)
opt = torch.optim.SGD([prompt, *text.parameters(), *image.parameters()], 1e-2)
for epoch in range(4):
    if epoch < 2:
        with torch.no_grad():  # warm-up: the text side is fixed
            classes = torch.tanh(text(prompt))
    else:
        classes = torch.tanh(text(prompt))
    for step in range(10):
        feature = image(torch.randn(16, 10))
        logits = feature @ classes.t()  # REUSED
        loss = nn.functional.cross_entropy(logits, torch.randint(0, 4, (16,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
