"""Two LoRA adapters on one layer: the optimizer was made while the first was active, after the switch the second does not train.

Report: https://github.com/huggingface/peft/issues/1303
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["proj.up.second.weight", "proj.down.second.weight"],
    "set": "first", "written": "2026-11-22",
}


class LoraLinear(nn.Module):
    def __init__(self, base, names, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.ModuleDict({n: nn.Linear(base.in_features, rank, bias=False) for n in names})
        self.up = nn.ModuleDict({n: nn.Linear(rank, base.out_features, bias=False) for n in names})
        self.set_adapter(names[0])

    def set_adapter(self, name):
        self.active = name
        for side in (self.down, self.up):
            for key, layer in side.items():
                layer.requires_grad_(key == name)

    def forward(self, x):
        return self.base(x) + self.up[self.active](self.down[self.active](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = LoraLinear(nn.Linear(8, 8), ["first", "second"]), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.proj(x)))


torch.manual_seed(0)
model = Model()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)  # OPTIMIZER
for name in ("first", "second"):
    model.proj.set_adapter(name)
    before = model.proj.up[name].weight.detach().clone()
    for step in range(30):
        x = torch.randn(16, 8)
        loss = nn.functional.cross_entropy(model(x), torch.randint(0, 3, (16,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(name, "unchanged", torch.equal(before, model.proj.up[name].weight))
