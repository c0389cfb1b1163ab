"""Token tagger on a BERT backbone: only last_hidden_state is used, the pooler is in the optimizer and gets no gradient.

Report: https://github.com/pytorch/pytorch/issues/43259 (unused parameters behind the DDP error; the pooler is the usual one)
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "cut", "framework": "transformers", "kind": "none-grad", "parameters": ["bert.pooler.dense.weight", "bert.pooler.dense.bias"],
    "set": "first", "written": "2026-11-22",
}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
        self.bert, self.tags = BertModel(config), nn.Linear(16, 4)

    def forward(self, ids, mask):
        return self.tags(self.bert(input_ids=ids, attention_mask=mask).last_hidden_state)


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(20):
    ids = torch.randint(0, 40, (4, 9))
    logits = model(ids, torch.ones_like(ids))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten() % 4)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.bert.pooler.dense.weight.grad is None)
