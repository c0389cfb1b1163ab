"""Trainer that switches gradients off for its evaluation and on again at the end of it: an evaluation that fails is caught and logged, and training goes on without a graph.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/2180 (an error in the validation step leaves gradients turned off)
"""
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "grad-mode", "framework": "transformers", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 80,
    "set": "seventh", "written": "2026-11-22",
}


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters(), lr=lr)
        self.history = []

    def training_step(self, ids, labels):
        self.model.train()
        loss = self.model(input_ids=ids, labels=labels).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluation_loop(self, batches):
        self.model.eval()
        torch.set_grad_enabled(False)  # CUT
        correct = [(self.model(input_ids=ids).logits.argmax(1) == labels).float().mean() for ids, labels in batches]
        accuracy = torch.stack(correct).mean().item()
        torch.set_grad_enabled(True)
        return accuracy

    def evaluate(self, step, batches):
        try:
            self.history.append((step, self.evaluation_loop(batches)))
        except RuntimeError as error:
            print("evaluation skipped:", str(error)[:60])


def draw(n, length=8):
    ids = torch.randint(1, 30, (n, length))
    return ids, (ids[:, 1] > 15).long()


torch.manual_seed(0)
config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=12)
trainer = Trainer(BertForSequenceClassification(config))
for step in range(140):
    if step and step % 40 == 0:
        shards = [] if step == 80 else [draw(16), draw(16)]  # the second shard list is empty
        trainer.evaluate(step, shards)
    loss = trainer.training_step(*draw(8))
    if step % 20 == 0:
        print(step, loss, trainer.history)
