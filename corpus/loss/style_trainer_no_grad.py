"""Fine-tuning a small language model with the Trainer of transformers. A second term is to keep the output's entropy up;
its function is decorated with no_grad, as the metric that it was copied from."""
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

EXPECT = {
    "class": "loss term without a graph",
    "kind": "loss-term-without-graph",
    "framework": "transformers",
    "line": ["cut", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)


@torch.no_grad()  # <-- cause
def mean_entropy(logits):
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1).mean()


class Diverse(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **_):
        output = model(**inputs)
        loss = output.loss - 0.1 * mean_entropy(output.logits)
        return (loss, output) if return_outputs else loss


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = (torch.arange(16) * (i % 7 + 1)) % 40
        return {"input_ids": ids, "labels": ids}


config = GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=1, n_head=2)
arguments = TrainingArguments(
    "trained", max_steps=12, per_device_train_batch_size=8, report_to=[], use_cpu=True, save_strategy="no",
    disable_tqdm=True, logging_strategy="no",
)
Diverse(GPT2LMHeadModel(config), arguments, train_dataset=Sentences()).train()
