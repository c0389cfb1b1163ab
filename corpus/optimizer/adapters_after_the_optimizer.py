"""BERT with bottleneck adapters in a training loop of one's own: the adapters are put in when the optimizer has been made.

Report: https://github.com/adapter-hub/adapters/issues/260 (the adapter's weights are not updated without the Trainer)
"""
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

EXPECT = {
    "class": "no-optimizer", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "set": "fourth", "written": "2026-11-22",
}


class Adapter(nn.Module):
    def __init__(self, dense, dim=4):
        super().__init__()
        self.dense = dense
        self.down, self.up = nn.Linear(dense.out_features, dim), nn.Linear(dim, dense.out_features)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        h = self.dense(x)
        return h + self.up(torch.relu(self.down(h)))


def add_adapters(model):
    for layer in model.bert.encoder.layer:
        layer.output.dense = Adapter(layer.output.dense)


torch.manual_seed(0)
config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3, max_position_embeddings=16)
model = BertForSequenceClassification(config)
for p in model.bert.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # OPTIMIZER
add_adapters(model)
for step in range(40):
    ids = torch.randint(1, 40, (8, 10))
    loss = model(input_ids=ids, labels=ids[:, 0] % 3).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
