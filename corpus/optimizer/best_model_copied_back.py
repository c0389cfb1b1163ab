"""BERT whose best state is kept as a copy of the whole model: on a plateau the copy takes the model's place, and the optimizer goes on with the parameters of the one that was left.

Report: https://github.com/kitzeslab/opensoundscape/issues/351 (training goes on from a loaded model, the optimizer holds the old object's weights)
"""
import copy

import torch
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "no-optimizer", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 80,
    "set": "fifth", "written": "2026-11-22",
}


def batches(n, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        ids = torch.randint(1, 40, (8, 10), generator=g)
        yield ids, (ids[:, 1] > 20).long()


@torch.no_grad()
def validate(model):
    model.eval()
    losses = [model(input_ids=ids, labels=labels).loss.item() for ids, labels in batches(4, 99)]
    model.train()
    return sum(losses) / len(losses)


torch.manual_seed(0)
config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, num_labels=2)
model = BertForSequenceClassification(config)
no_decay = ("bias", "LayerNorm.weight")
groups = [
    {"params": [p for n, p in model.named_parameters() if not n.endswith(no_decay)], "weight_decay": 0.01},
    {"params": [p for n, p in model.named_parameters() if n.endswith(no_decay)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-3)  # OPTIMIZER
best_loss, best_model = float("inf"), None
for epoch in range(7):
    for ids, labels in batches(20, epoch):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    val_loss = validate(model)
    print(epoch, "val", round(val_loss, 5))
    if val_loss < best_loss and epoch < 3:
        best_loss, best_model = val_loss, copy.deepcopy(model)
    elif epoch == 3:  # patience is over: back to the best and on with a lower rate
        model = copy.deepcopy(best_model)
        for group in optimizer.param_groups:
            group["lr"] *= 0.1
