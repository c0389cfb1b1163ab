"""Selective state-space blocks whose statistics are collected by forward hooks on the inner projections: the fast path reads their weights and never calls them.

Report: https://github.com/state-spaces/mamba/issues/59 (hooks on mixer.in_proj and mixer.conv1d never called, the one on the mixer is)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "hook", "kind": "hook-never-fires", "hook_marker": "HOOK", "set": "sixth", "written": "2026-11-22"}


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.conv1d = nn.Conv1d(dim, dim, 3, padding=2, groups=dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        h, gate = F.linear(x, self.in_proj.weight, self.in_proj.bias).chunk(2, -1)
        length = h.shape[1]
        h = F.conv1d(h.transpose(1, 2), self.conv1d.weight, self.conv1d.bias, padding=2, groups=h.shape[-1])
        h = F.silu(h[..., :length]).transpose(1, 2)
        return self.out_proj(h * F.silu(gate))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(dim), Mixer(dim)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Model(nn.Module):
    def __init__(self, words=20, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, words)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Recorder:
    def __init__(self):
        self.scale = {}

    def attach(self, name, module):
        def record(module, inputs, output):
            self.scale[name] = output.detach().abs().mean().item()

        module.register_forward_hook(record)  # HOOK


torch.manual_seed(0)
model, recorder = Model(), Recorder()
for i, layer in enumerate(model.layers):
    recorder.attach(f"layers.{i}.mixer.in_proj", layer.mixer.in_proj)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(120):
    ids = (torch.randint(0, 20, (8, 1)) + torch.arange(12)) % 20
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), recorder.scale)
