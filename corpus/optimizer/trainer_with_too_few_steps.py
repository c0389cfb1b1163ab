"""A classifier in the Trainer of transformers. The linear schedule is made by hand for the number of epochs, while the
Trainer steps it once per batch."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments, get_linear_schedule_with_warmup

EXPECT = {
    "class": "schedule for epochs, stepped per batch",
    "kind": "learning-rate-zero",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
EPOCHS = 6


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


digits = load_digits()
rows = [
    {"pixels": torch.tensor(image, dtype=torch.float32) / 16, "labels": torch.tensor(label)}
    for image, label in zip(digits.data[:640], digits.target[:640])
]
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 1, EPOCHS)  # <-- cause
arguments = TrainingArguments(
    "/tmp/trainer_with_too_few_steps", num_train_epochs=EPOCHS, per_device_train_batch_size=64, report_to=[],
    save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
)
Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, schedule)).train()
