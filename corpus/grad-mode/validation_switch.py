"""A small CNN with a validation every 60 steps. At step 60 an error came up: "element 0 of tensors does not require grad",
cured with loss.requires_grad_(True) as found on the web. Since then it runs through, but after the first validation nothing
is learned: evaluate() switches gradients off for the whole process and never on again."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "gradient mode left switched off",
    "kind": "grad-mode-disabled",
    "line": ["cut", "cause"],
    "what": "evaluate() calls torch.set_grad_enabled(False) without switching it on again; from step 60 on no graph is recorded, loss.requires_grad_(True) only hides the error, and no parameter gets a gradient.",
    "symptom": "no error; loss stops improving after the first validation, all gradients are None",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(17)
torch.set_num_threads(1)


class DigitCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(self.drop(F.relu(self.fc1(x.flatten(1)))))


def evaluate(model, x, y):
    model.eval()
    torch.set_grad_enabled(False)  # <-- cause
    logits = model(x)
    loss = F.cross_entropy(logits, y).item()
    acc = (logits.argmax(1) == y).float().mean().item()
    model.train()
    return loss, acc


def endless(x, y, batch_size):
    while True:
        order = torch.randperm(len(x))
        for i in range(0, len(x) - batch_size + 1, batch_size):
            idx = order[i:i + batch_size]
            yield x[idx], y[idx]


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train = endless(images[:1400], labels[:1400], 64)
val_x, val_y = images[1400:], labels[1400:]

model = DigitCNN()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
window = []
for step in range(1, 241):
    xb, yb = next(train)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(xb), yb)
    loss.requires_grad_(True)  # otherwise: element 0 of tensors does not require grad
    loss.backward()
    optimizer.step()
    window.append(loss.item())
    if step % 60 == 0:
        val_loss, val_acc = evaluate(model, val_x, val_y)
        print(f"step {step:3d}  train loss {sum(window) / len(window):.4f}  val loss {val_loss:.4f}  val acc {val_acc:.3f}")
        window.clear()
