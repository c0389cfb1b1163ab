"""Fine-tuning with the Trainer of transformers. A callback wants the gradient norms of each epoch and registers its hooks on
epoch begin; from epoch to epoch logging takes longer, and each norm appears once more."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

EXPECT = {
    "class": "hooks pile up",
    "kind": "hooks-pile-up",
    "line": ["hook", "cause"],
    "what": "on_epoch_begin registers a hook on every parameter again, and nobody removes those of the epochs before.",
    "symptom": "no error; the log grows quadratically",
    "framework": "transformers",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)


class Pairs(Dataset):
    def __init__(self):
        self.x = torch.randn(96, 12)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(12, 24), nn.Linear(24, 2)

    def forward(self, x, labels):
        logits = self.out(torch.tanh(self.body(x)))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class GradientLog(TrainerCallback):
    def __init__(self):
        self.norms = []

    def record(self, grad):
        self.norms.append(grad.norm().item())

    def on_epoch_begin(self, args, state, control, model=None, **kwargs):
        for p in model.parameters():
            p.register_hook(self.record)  # <-- cause


log = GradientLog()
arguments = TrainingArguments(
    output_dir="/tmp/unused", num_train_epochs=10, per_device_train_batch_size=16, report_to=[], save_strategy="no",
    disable_tqdm=True, use_cpu=True, logging_strategy="no")
Trainer(model=Classifier(), args=arguments, train_dataset=Pairs(), callbacks=[log]).train()
print(f"{len(log.norms)} norms of 60 steps with 4 parameters")
