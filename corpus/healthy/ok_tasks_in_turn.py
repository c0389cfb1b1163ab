"""Healthy: one BERT, two tasks that take turns; each step leaves the other task's head without gradient, and the tagging task only begins after a while.

Report it resembles: https://github.com/google-research/bert/issues/504 (one BERT for several tasks, a batch of one task in each step)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "fifth", "written": "2026-11-22"}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.heads = nn.ModuleDict({"topic": nn.Linear(16, 4), "tags": nn.Linear(16, 3)})

    def forward(self, task, ids):
        hidden = self.bert(input_ids=ids).last_hidden_state
        return self.heads[task](hidden[:, 0] if task == "topic" else hidden)


torch.manual_seed(0)
model = MultiTask()
optimizer = torch.optim.AdamW([
    {"params": model.bert.parameters(), "lr": 1e-3},
    {"params": model.heads["topic"].parameters(), "lr": 3e-3},
    {"params": model.heads["tags"].parameters(), "lr": 3e-3},
])
history = {"topic": [], "tags": []}
for step in range(140):
    task = "tags" if step >= 30 and step % 2 else "topic"
    ids = torch.randint(1, 40, (8, 10))
    logits = model(task, ids)
    if task == "topic":
        loss = nn.functional.cross_entropy(logits, ids[:, 1] // 10)
    else:
        labels = ids % 3
        labels[:, 0] = -100
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    history[task].append(loss.item())
    if step % 20 == 0:
        print(step, task, loss.item())
