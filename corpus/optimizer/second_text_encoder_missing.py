"""Textual inversion with two text encoders: the new rows of the second are trainable, the optimizer got the first one's twice.

Report: https://github.com/huggingface/diffusers/issues/10313 (textual inversion parts of an advanced script that do not train)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "parameters": ["text_two.weight"],
    "set": "first", "written": "2026-11-22",
}


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.text_one, self.text_two, self.unet = nn.Embedding(20, 6), nn.Embedding(20, 6), nn.Linear(16, 4)

    def forward(self, noisy, tokens):
        c = torch.cat([self.text_one(tokens).mean(1), self.text_two(tokens).mean(1)], 1)
        return self.unet(torch.cat([noisy, c], 1))


torch.manual_seed(0)
pipe = Pipeline()
groups = [
    {"params": list(pipe.text_one.parameters()), "lr": 1e-3},
    {"params": list(pipe.unet.parameters()), "lr": 1e-4},
]
opt = torch.optim.AdamW(groups, weight_decay=1e-2)  # OPTIMIZER
before = pipe.text_two.weight.detach().clone()
for step in range(40):
    clean, noise = torch.randn(8, 4), torch.randn(8, 4)
    loss = (pipe(clean + noise, torch.randint(0, 20, (8, 5))) - noise).square().mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print("reproduced", torch.equal(before, pipe.text_two.weight))
