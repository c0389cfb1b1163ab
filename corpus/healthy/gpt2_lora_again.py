"""LoRA by hand on a small GPT-2, trained with the Trainer. It looks as if nearly everything stood still: the base model gets
no gradient, and in the first step the gradient of every lora_a is exactly zero. Both are meant: the base is frozen, and
lora_b starts at zero, so lora_a gets its gradient from the second step on; the loss goes down."""
import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.pytorch_utils import Conv1D

EXPECT = {
    "class": "healthy: intended freezing (LoRA)",
    "kind": "none",
    "what": "The base model is frozen on purpose and only the adapters are in the optimizer; lora_a's gradient is zero in the first step because lora_b is initialised to zero, and both move afterwards.",
    "symptom": "loss goes down; only lora_* change",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(22)
torch.set_num_threads(1)


class LoRALayer(nn.Module):
    def __init__(self, base, rank=4, alpha=16):
        super().__init__()
        self.base = base
        n_in, n_out = base.weight.shape  # Conv1D keeps (in, out)
        self.lora_a = nn.Parameter(torch.randn(n_in, rank) / rank)
        self.lora_b = nn.Parameter(torch.zeros(rank, n_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a @ self.lora_b)


def add_lora(model, rank):
    for p in model.parameters():
        p.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Conv1D) and name in ("c_attn", "c_fc"):
                setattr(parent, name, LoRALayer(child, rank))
    return model


class CountingData(Dataset):
    """Sequences that count upwards by a fixed stride."""

    def __init__(self, n, length=16, vocab=32):
        start, stride = torch.randint(0, vocab, (n, 1)), torch.randint(1, 4, (n, 1))
        self.ids = (start + stride * torch.arange(length)) % vocab

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        if "loss" in (logs or {}):
            b = sum(p.norm().item() for n, p in model.named_parameters() if n.endswith("lora_b"))
            print(f"step {state.global_step:3d}  loss {float(logs['loss']):.4f}  sum of the lora_b norms {b:.3f}")


config = GPT2Config(
    vocab_size=32, n_positions=32, n_embd=48, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    initializer_range=0.1, bos_token_id=None, eos_token_id=None)
model = add_lora(GPT2LMHeadModel(config), rank=4)
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable:", sum(p.numel() for p in trainable), "of", sum(p.numel() for p in model.parameters()))
args = TrainingArguments(
    output_dir="trainer_out", max_steps=120, per_device_train_batch_size=16, learning_rate=5e-3, logging_steps=20,
    report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True, seed=22)
Trainer(model=model, args=args, train_dataset=CountingData(1000), callbacks=[Report()]).train()
