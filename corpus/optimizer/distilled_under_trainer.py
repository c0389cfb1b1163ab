"""A small network of iris flowers learns from a frozen one under the Trainer of transformers. The model puts its teacher
into eval mode when it is made, and the Trainer puts the whole model into train mode."""
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_iris
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

EXPECT = {
    "class": "a frozen part is put into training mode", "framework": "transformers", "kind": "frozen-in-training-mode",
    "line": ("cause", "CAUSE"),
    "what": "The Trainer calls train() on the whole model, so that the eval() of its teacher in __init__ is undone.",
    "set": "ledger", "written": "2026-11-27",
}


class Flowers(Dataset):
    def __init__(self):
        features, kinds = load_iris(return_X_y=True)
        features = torch.tensor(features, dtype=torch.float32)
        self.features, self.kinds = (features - features.mean(0)) / features.std(0), torch.tensor(kinds)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        return {"features": self.features[i], "labels": self.kinds[i]}


class Distilled(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.teacher = teacher
        self.teacher.requires_grad_(False)
        self.teacher.eval()

    def forward(self, features, labels=None):
        logits = self.student(features)
        with torch.no_grad():
            target = self.teacher(features).softmax(1)
        return {"loss": F.cross_entropy(logits, target), "logits": logits}


def fitted(flowers):
    net = nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(40):
        loss = F.cross_entropy(net(flowers.features), flowers.kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def main():
    torch.manual_seed(2)
    flowers = Flowers()
    model = Distilled(fitted(flowers))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=80, per_device_train_batch_size=10, learning_rate=1e-2, logging_steps=40,
            save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
        Trainer(model=model, args=arguments, train_dataset=flowers).train()  # CAUSE
    model.eval()
    with torch.no_grad():
        print(f"accuracy {(model.student(flowers.features).argmax(1) == flowers.kinds).float().mean():.2f}")


if __name__ == "__main__":
    main()
