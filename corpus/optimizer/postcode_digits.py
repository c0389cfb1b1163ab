"""Half-precision training of a postcode digit reader with a gradient scaler.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/9599
"""
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "the loss stays near its first value and accuracy stays near chance, the curve is flat",
    "set": "twentysixth",
    "written": "2026-11-29",
}

EPOCHS, BATCH, MAX_NORM = 10, 32, 1.0


class Reader(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.first = nn.Linear(64, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 10)

    def forward(self, pixels):
        hidden = torch.relu(self.first(pixels))
        hidden = hidden + torch.relu(self.second(hidden))
        return self.head(hidden)


def load():
    pixels, digits = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16.0, digits, test_size=0.3, random_state=4, stratify=digits)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    train_y, test_y = (torch.tensor(part) for part in parts[2:])
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


class HalfTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        self.criterion = nn.CrossEntropyLoss()

    def step(self, pixels, digits):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(pixels)
        loss = self.criterion(logits.float(), digits)
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)  # HERE
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, dataset):
        self.model.eval()
        pixels, digits = dataset.tensors
        hits = (self.model(pixels).argmax(1) == digits).float().mean().item()
        self.model.train()
        return hits


def main():
    torch.manual_seed(1)
    train, test = load()
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)
    trainer = HalfTrainer(Reader())
    for epoch in range(EPOCHS):
        total = 0.0
        for pixels, digits in loader:
            total += trainer.step(pixels, digits)
        print(f"epoch {epoch:2d}  loss {total / len(loader):.4f}  test accuracy {trainer.accuracy(test):.3f}  scale {trainer.scaler.get_scale():.0f}")
    print(f"final test accuracy {trainer.accuracy(test):.3f}")


if __name__ == "__main__":
    main()
