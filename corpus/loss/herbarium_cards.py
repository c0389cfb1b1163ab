"""In compute_loss the whole distillation term, the student's log-probabilities included, is computed under no_grad, so
only the noisy hard labels train the student and the teacher has no effect.

Report: Questions on distillation with a custom Trainer; haitongli/knowledge-distillation-pytorch pull #16 (teacher
and student under no_grad together); yifita/deep_cage issue #16 (a loss weight of any size changes nothing)
"""
import tempfile

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

EXPECT = {
    "kind": "loss-term-without-graph",
    "line": ("cut", "HERE"),
    "plain": "accuracy 0.109 (it learns the swapped labels), loss 0.916; 1.000 and 0.041 when only the teacher is under no_grad",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


VOCAB, LENGTH, FAMILIES = 64, 10, 6


class Cards(Dataset):
    def __init__(self, n, seed, wrong=0.0):
        gen = torch.Generator().manual_seed(seed)
        self.truth = torch.randint(0, FAMILIES, (n,), generator=gen)
        ids = torch.randint(20, VOCAB, (n, LENGTH), generator=gen)
        spot = torch.rand(n, LENGTH, generator=gen).argsort(1)[:, :3]
        ids = ids.scatter(1, spot, 2 + self.truth[:, None] * 3 + torch.randint(0, 3, (n, 3), generator=gen))
        self.ids = ids
        swap = torch.rand(n, generator=gen) < wrong
        self.label = torch.where(swap, (self.truth + 1) % FAMILIES, self.truth)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.label[i]}


class Botanist(torch.nn.Module):
    def forward(self, ids):
        family = torch.div(ids - 2, 3, rounding_mode="floor")
        votes = [((ids >= 2) & (ids < 20) & (family == f)).sum(1) for f in range(FAMILIES)]
        return torch.stack(votes, 1).float() * 2.0


class DistillTrainer(Trainer):
    def __init__(self, *args, teacher=None, alpha=0.8, temperature=2.0, **kw):
        super().__init__(*args, **kw)
        self.teacher, self.alpha, self.temperature = teacher, alpha, temperature

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        out = model(**inputs)
        t = self.temperature
        with torch.no_grad():  # HERE
            target = F.softmax(self.teacher(inputs["input_ids"]) / t, -1)
            student = F.log_softmax(out.logits / t, -1)
            kd = F.kl_div(student, target, reduction="batchmean") * t * t
        loss = (1 - self.alpha) * out.loss + self.alpha * kd
        return (loss, out) if return_outputs else loss


def main():
    set_seed(3)
    config = BertConfig(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=LENGTH, num_labels=FAMILIES,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(config)
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=32, max_steps=300,
                             learning_rate=1e-3, lr_scheduler_type="linear", warmup_steps=20, logging_steps=50,
                             save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=3)
    trainer = DistillTrainer(model=model, args=args, train_dataset=Cards(5000, 1, wrong=0.55), teacher=Botanist())
    trainer.train()
    test = Cards(1000, 2)
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=test.ids).logits
    print(f"final accuracy {(logits.argmax(1) == test.truth).float().mean().item():.4f}"
          f" loss {F.cross_entropy(logits, test.truth).item():.4f}")


if __name__ == "__main__":
    main()
