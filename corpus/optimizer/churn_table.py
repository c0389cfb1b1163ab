"""Trains an MLP on a small noisy table and keeps the weights of the best validation loss; the kept state_dict only refers
to the live tensors, so later steps overwrite it and the final "best" model is the last, overfitted one (the validation
loss after reloading is that of the last step, far above the recorded best).

Report: https://github.com/pytorch/tutorials/pull/188 (without a deep copy best_model_wts always changes to the last
epoch's state)
"""
import torch
from torch import nn
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "best_state = model.state_dict() keeps references, not a copy, so the saved best weights are overwritten by every later step; use copy.deepcopy(model.state_dict()).",
    "set": "twentysecond", "written": "2026-11-28",
}


def load(seed=0):
    X, y = make_classification(n_samples=1200, n_features=30, n_informative=8, n_redundant=4, flip_y=0.15,
                               class_sep=0.8, random_state=seed)
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    ids = train_test_split(range(len(X)), test_size=0.6, random_state=seed)
    va, te = ids[1][:360], ids[1][360:]
    return [(X[i], y[i]) for i in (ids[0], va, te)]


class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


@torch.no_grad()
def score(model, split, criterion):
    model.eval()
    logits = model(split[0])
    model.train()
    return criterion(logits, split[1]).item(), ((logits > 0).float() == split[1]).float().mean().item()


def run():
    torch.manual_seed(2)
    train, val, test = load()
    model = Net(30)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    best_loss, best_state, best_step = float("inf"), None, -1
    for step in range(1, 361):
        idx = torch.randint(len(train[0]), (64,))
        loss = criterion(model(train[0][idx]), train[1][idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            val_loss, val_acc = score(model, val, criterion)
            print(f"step {step} train {loss.item():.3f} val {val_loss:.3f} acc {val_acc:.3f}")
            if val_loss < best_loss:
                best_loss, best_step = val_loss, step
                best_state = model.state_dict()  # CAUSE
    model.load_state_dict(best_state)
    val_loss, _ = score(model, val, criterion)
    test_loss, test_acc = score(model, test, criterion)
    print(f"best val {best_loss:.3f} (step {best_step}), val after reloading {val_loss:.3f}, "
          f"test {test_loss:.3f} acc {test_acc:.3f}")


if __name__ == "__main__":
    run()
