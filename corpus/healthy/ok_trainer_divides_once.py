"""The Trainer of transformers asks a small BERT to normalise its loss over all accumulated batches, so only compute_loss divides; a manual loop of Lightning divides by hand."""
import tempfile

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

EXPECT = {"class": "loss-divided-twice", "framework": "transformers", "kind": None, "set": "ledger", "written": "2026-11-27"}


class OwnLoss(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels) / self.args.gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss


class ByHand(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.accumulation = 4
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))

    def training_step(self, batch, index):
        (x,) = batch
        loss = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
        self.manual_backward(loss / self.accumulation)
        if (index + 1) % self.accumulation == 0:
            self.optimizers().step()
            self.optimizers().zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, num_labels=2)
    ids = torch.randint(0, 40, (160, 8))
    data = [{"input_ids": row, "labels": int(row[0] > 19)} for row in ids]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=20, per_device_train_batch_size=8, gradient_accumulation_steps=4, learning_rate=1e-3,
            use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
        )
        OwnLoss(model=BertForSequenceClassification(config), args=arguments, train_dataset=data).train()
    loader = DataLoader(TensorDataset(torch.randn(320, 6)), batch_size=8)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(ByHand(), loader)


if __name__ == "__main__":
    main()
