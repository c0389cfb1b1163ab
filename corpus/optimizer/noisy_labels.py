"""Trains a digit classifier on partly wrong labels and keeps the weights of the best validation epoch; the weights restored at the end are those of the last epoch.

Report: https://github.com/pytorch/tutorials/pull/188 (best_model_wts = model.state_dict() must be a deep copy, otherwise it changes always to the last epoch's state; also https://github.com/WenjieDu/PyPOTS/issues/667)
What is seen: the accuracy after load_state_dict(best) is that of the last epoch, several points below the best one printed.
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "state_dict() returns references, so the saved best weights go on changing with the model; take copy.deepcopy(model.state_dict())",
    "set": "nineteenth", "written": "2026-11-27",
}


def get_data(seed=0):
    g = torch.Generator().manual_seed(seed)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=g)
    x, y = x[order], y[order]
    noisy = y[:600].clone()
    flip = torch.rand(600, generator=g) < 0.45
    noisy[flip] = torch.randint(0, 10, (int(flip.sum()),), generator=g)
    train = DataLoader(TensorDataset(x[:600], noisy), batch_size=32, shuffle=True, generator=g)
    return {"train": train, "val": DataLoader(TensorDataset(x[600:1100], y[600:1100]), batch_size=250)}, (x[1100:], y[1100:])


def train_model(model, loaders, criterion, optimizer, scheduler, num_epochs, warmup_epochs=3):
    best_model_wts = None
    best_acc = 0.0
    for epoch in range(num_epochs):
        stats = {}
        for phase in ["train", "val"]:
            model.train(phase == "train")
            total, correct, loss_sum = 0, 0, 0.0
            for inputs, labels in loaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                loss_sum += loss.item() * len(inputs)
                correct += (outputs.argmax(1) == labels).sum().item()
                total += len(inputs)
            stats[phase] = (loss_sum / total, correct / total)
        scheduler.step()
        if epoch >= warmup_epochs and stats["val"][1] > best_acc:
            best_acc = stats["val"][1]
            best_model_wts = model.state_dict()  # CAUSE
        if epoch % 3 == 0 or epoch == num_epochs - 1:
            print(f"epoch {epoch:2d} train loss {stats['train'][0]:.4f} val loss {stats['val'][0]:.4f} val acc {stats['val'][1]:.3f}")
    print(f"best val acc {best_acc:.3f}")
    model.load_state_dict(best_model_wts)  # OTHER
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    loaders, (test_x, test_y) = get_data()
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 15, 0.5)
    net = train_model(net, loaders, nn.CrossEntropyLoss(), optimizer, scheduler, num_epochs=20)
    net.eval()
    with torch.no_grad():
        val_x, val_y = loaders["val"].dataset.tensors
        print(f"restored weights: val acc {(net(val_x).argmax(1) == val_y).float().mean():.3f}",
              f"test acc {(net(test_x).argmax(1) == test_y).float().mean():.3f}")
