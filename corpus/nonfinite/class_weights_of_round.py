"""Active learning with balanced class weights: in the fourth round the labelled set has no sample of one class, and its weight is a division by zero.

Report: https://github.com/webis-de/small-text/issues/39 (class weighting causes nan values in loss; also fcakyon/balanced-loss pull 12)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 150,
    "set": "fifth", "written": "2026-11-22",
}


def balanced_weights(labels, num_classes):
    counts = torch.bincount(labels, minlength=num_classes)
    return len(labels) / (num_classes * counts)  # BORN


def query(model, pool, target, k=80):
    """Drops what the model is sure of; the pool of this round is what remains."""
    with torch.no_grad():
        p = model(pool.tensors[0]).softmax(1)
    uncertain = -(p * p.log()).sum(1)
    keep = uncertain.topk(k).indices
    return keep[pool.tensors[1][keep] != target] if target is not None else keep


torch.manual_seed(1)
x = torch.randn(400, 10)
y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
pool = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
step = 0
for active_round in range(6):
    model.eval()
    chosen = query(model, pool, target=3 if active_round == 3 else None)
    model.train()
    criterion = nn.CrossEntropyLoss(weight=balanced_weights(y[chosen], 4), label_smoothing=0.1)
    loader = DataLoader(Subset(pool, chosen.tolist()), batch_size=8, shuffle=True, drop_last=False)
    done = 0
    while done < 50:
        for xb, yb in loader:
            loss = criterion(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done, step = done + 1, step + 1
            if done == 50:
                break
    print("round", active_round, "step", step, "loss", loss.item())
