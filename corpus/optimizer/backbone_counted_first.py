"""Fine-tuning with a smaller rate for the backbone: its parameters are a generator that was used up for counting them, the optimizer gets an empty group.

Report: https://github.com/pytorch/pytorch/issues/47594 (a generator of parameters is exhausted before the optimizer sees it)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["backbone.0.weight", "backbone.0.bias", "backbone.3.weight"],
    "set": "fifth", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes))

    def forward(self, x):
        return self.head(self.backbone(x))


def size(params):
    return sum(p.numel() for p in params if p.requires_grad)


torch.manual_seed(0)
model = Net()
backbone_params = (p for name, p in model.named_parameters() if name.startswith("backbone"))
head_params = [p for name, p in model.named_parameters() if name.startswith("head")]
print(f"backbone {size(backbone_params)} parameters, head {size(head_params)}")
optimizer = torch.optim.AdamW([{"params": backbone_params, "lr": 1e-3}, {"params": head_params, "lr": 1e-2}], weight_decay=1e-2)  # OPTIMIZER
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-3, 1e-2], total_steps=120)
patterns = torch.randn(5, 1, 10, 10)
for step in range(120):
    y = torch.randint(0, 5, (16,))
    x = patterns[y].roll(int(torch.randint(0, 3, ())), -1) + 0.5 * torch.randn(16, 1, 10, 10)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 20 == 0:
        print(step, loss.item())
