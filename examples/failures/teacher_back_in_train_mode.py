"""A frozen teacher of digits that `train()` of the whole model puts into training mode after the first evaluation."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "frozen-in-training-mode", "line": ("cause", "SWITCHES"), "module": "teacher"}


class Distilled(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher, self.student = teacher, nn.Linear(64, 10)

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x).softmax(1)
        return nn.functional.cross_entropy(self.student(x), target)


def fit(loss_of, parameters, images, epochs, after_epoch=None):
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if after_epoch is not None:
            after_epoch()


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    teacher = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    fit(
        lambda batch: nn.functional.cross_entropy(teacher(images[batch]), labels[batch]),
        teacher.parameters(),
        images,
        2,
    )

    model = Distilled(teacher.requires_grad_(False))
    model.teacher.eval()

    def evaluate():
        model.eval()
        with torch.no_grad():
            print(f"student {(model.student(images).argmax(1) == labels).float().mean():.2f}")
        model.train()  # SWITCHES

    fit(lambda batch: model(images[batch]), model.student.parameters(), images, 3, evaluate)


if __name__ == "__main__":
    main()
