"""Face recognition with a margin loss: the class centres live in the loss module, the optimizer was given the backbone only.

Report: https://github.com/4uiiurz1/pytorch-adacos/issues/10 (also KaiyangZhou/pytorch-center-loss issue 22)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "framework": "lightning", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "parameters": ["metric_fc.W"],
    "set": "second", "written": "2026-11-22",
}


class AdaCos(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.W = nn.Parameter(torch.randn(classes, features))

    def forward(self, x, label):
        cosine = nn.functional.normalize(x) @ nn.functional.normalize(self.W).t()
        return nn.functional.cross_entropy(8.0 * (cosine - 0.1 * nn.functional.one_hot(label, len(self.W))), label)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.metric_fc = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8)), AdaCos(8, 5)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.backbone.parameters(), 1e-2, momentum=0.9, weight_decay=1e-4)  # OPTIMIZER
        return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60)

    def training_step(self, x, y):
        return self.metric_fc(self.backbone(x), y)


torch.manual_seed(0)
model = Recogniser()
opt, sched = model.configure_optimizers()
before = model.metric_fc.W.detach().clone()
for step in range(60):
    loss = model.training_step(torch.randn(10, 10), torch.arange(10) % 5)
    model.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", torch.equal(before, model.metric_fc.W))
