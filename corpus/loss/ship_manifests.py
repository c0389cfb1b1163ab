"""A Trainer guesses the port of a ship from its goods. Its compute_loss is a mean over its own batch, and the model's forward takes **kwargs, so nobody divides by the 8 accumulated batches."""
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import Trainer, TrainingArguments, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput

EXPECT = {
    "class": "accumulation-not-averaged", "framework": "transformers", "kind": "accumulation-not-averaged", "line": ("cause", "HERE"),
    "set": "twentyeighth", "written": "2026-11-29",
}

N_GOODS = 60
N_PORTS = 6
LENGTH = 12


class Manifests(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        taste = torch.randn(N_PORTS, N_GOODS, generator=torch.Generator().manual_seed(2)) * 1.3
        self.labels = torch.randint(0, N_PORTS, (n,), generator=g)
        probs = torch.softmax(taste[self.labels], dim=-1)
        self.goods = torch.multinomial(probs, LENGTH, replacement=True, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.goods[i], "labels": self.labels[i]}


class PortGuesser(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.goods = nn.Embedding(N_GOODS, dim)
        self.attend = nn.Linear(dim, 1)
        self.hidden = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.port = nn.Linear(64, N_PORTS)

    def forward(self, input_ids, labels=None, **kwargs):
        e = self.goods(input_ids)
        w = torch.softmax(self.attend(e), dim=1)
        logits = self.port(self.hidden((w * e).sum(dim=1) * 3.0))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class ManifestTrainer(Trainer):
    def __init__(self, *args, port_weight=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.port_weight = port_weight

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, labels, weight=self.port_weight, label_smoothing=0.02)  # HERE
        return (loss, outputs) if return_outputs else loss


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=data.goods).logits
    return (logits.argmax(-1) == data.labels).float().mean().item()


def main():
    set_seed(29)
    train, held = Manifests(6400, 1), Manifests(1500, 5)
    counts = torch.bincount(train.labels, minlength=N_PORTS).float()
    model = PortGuesser()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=8,
            max_steps=300,
            learning_rate=0.15,
            optim="sgd",
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            logging_steps=30,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=29,
        )
        trainer = ManifestTrainer(
            model=model,
            args=args,
            train_dataset=train,
            port_weight=counts.mean() / counts,
        )
        trainer.train()
    print(f"held-out accuracy {accuracy(model, held):.3f}, on the training manifests {accuracy(model, train):.3f}")


if __name__ == "__main__":
    main()
