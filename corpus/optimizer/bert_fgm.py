"""Adversarial training (FGM) of a tiny BERT in the Trainer: in each step the word embeddings are pushed along their gradient
and put back after the second backward. The loss hardly goes down and the embeddings grow and grow, because the backup keeps
the very tensor that is then changed in place: restoring puts back the perturbed weights and the attacks add up."""
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

EXPECT = {
    "class": "weights overwritten outside the optimizer",
    "kind": "weight-overwritten",
    "line": ["mutated", "cause"],
    "what": "FGM's backup stores param.data without clone(), so restore() is a no-op and each attack of size epsilon stays in the word embeddings; they are moved along +gradient every step besides the optimizer's update.",
    "symptom": "no error; loss nearly stalls, norm of the word embeddings grows",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(21)
torch.set_num_threads(1)


class FGM:
    def __init__(self, model, epsilon=1.0, name="word_embeddings"):
        self.model, self.epsilon, self.name = model, epsilon, name
        self.backup = {}

    def attack(self):
        for name, param in self.model.named_parameters():
            if self.name in name and param.grad is not None:
                self.backup[name] = param.data  # <-- cause
                norm = param.grad.norm()
                if norm != 0:
                    param.data.add_(self.epsilon * param.grad / norm)

    def restore(self):
        for name, param in self.model.named_parameters():
            if name in self.backup:
                param.data = self.backup[name]
        self.backup = {}


class AdversarialTrainer(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        fgm = FGM(model)
        fgm.attack()
        super().training_step(model, inputs, num_items_in_batch)
        fgm.restore()
        return loss


class KeywordData(Dataset):
    """Label: does word 7 come up more often than word 8?"""

    def __init__(self, n, length=12):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(5, 20, (n, length), generator=generator)
        self.labels = ((self.ids == 7).sum(1) > (self.ids == 8).sum(1)).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        if "loss" in (logs or {}):
            norm = model.bert.embeddings.word_embeddings.weight.norm().item()
            print(f"step {state.global_step:3d}  loss {float(logs['loss']):.4f}  norm of the word embeddings {norm:.2f}")


config = BertConfig(
    vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir="trainer_out", max_steps=100, per_device_train_batch_size=32, learning_rate=2e-3, logging_steps=20,
    report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True, seed=21)
trainer = AdversarialTrainer(model=model, args=args, train_dataset=KeywordData(2000), callbacks=[Report()])
trainer.train()
