"""Healthy: a set predictor whose outputs are matched with the objects by SciPy; the costs leave the graph on purpose, unmatched queries learn "no object", auxiliary losses come from every layer.

Report it resembles: https://github.com/facebookresearch/detr/issues/533 (how gradients flow past linear_sum_assignment)
"""
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fifth", "written": "2026-11-22"}


class SetPredictor(nn.Module):
    def __init__(self, queries=6, dim=24, classes=3, layers=2):
        super().__init__()
        self.query = nn.Parameter(torch.randn(queries, dim))
        self.embed = nn.Linear(4, dim)
        self.layers = nn.ModuleList([nn.TransformerDecoderLayer(dim, 2, 48, dropout=0.0, batch_first=True) for _ in range(layers)])
        self.label, self.box = nn.Linear(dim, classes + 1), nn.Linear(dim, 2)

    def forward(self, points):
        memory = self.embed(points)
        h = self.query.expand(len(points), -1, -1)
        outputs = []
        for layer in self.layers:
            h = layer(h, memory)
            outputs.append((self.label(h), self.box(h)))
        return outputs


@torch.no_grad()
def match(logits, boxes, labels, places):
    probability = logits.softmax(-1).gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
    cost = torch.cdist(boxes, places) - probability
    return [linear_sum_assignment(c.numpy()) for c in cost]


def criterion(logits, boxes, labels, places):
    target = torch.full(logits.shape[:2], 3)
    box_loss = 0.0
    for i, (rows, cols) in enumerate(match(logits, boxes, labels, places)):
        target[i, rows] = labels[i, cols]
        box_loss = box_loss + (boxes[i, rows] - places[i, cols]).abs().mean()
    weight = torch.tensor([1.0, 1.0, 1.0, 0.1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), weight) + box_loss / len(logits)


torch.manual_seed(0)
model = SetPredictor()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
for step in range(120):
    labels, places = torch.randint(0, 3, (8, 3)), torch.rand(8, 3, 2)
    points = torch.cat([places, labels[..., None].float(), torch.randn(8, 3, 1)], -1)
    loss = sum(criterion(logits, boxes, labels, places) for logits, boxes in model(points))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
