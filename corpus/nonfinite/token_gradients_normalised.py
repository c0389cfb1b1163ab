"""Fine-tuning a BERT with gradients of the embeddings brought to length one per token, by a hook: a padded token has no gradient, and the hook makes 0 / 0 of it.

Report: https://github.com/rollovd/LookSAM/issues/1 (gradients become NaN: g / g.norm() without an epsilon), here in a tensor hook
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "hook", "framework": "transformers", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 64,
    "set": "fifth", "written": "2026-11-22",
}


def unit_length(grad):
    return grad / grad.norm(dim=-1, keepdim=True)  # CULPRIT


def balance_tokens(module, args, embeddings):
    if embeddings.requires_grad:
        embeddings.register_hook(unit_length)  # CULPRIT


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, attn_implementation="eager")
        self.bert = BertModel(config, add_pooling_layer=False)
        self.bert.embeddings.register_forward_hook(balance_tokens)
        self.head = nn.Linear(16, 2)

    def forward(self, ids, mask):
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return self.head(hidden[:, 0])


def collate(step, size=8):
    """Batches are made of texts of one length; the last batch of the epoch is what remains."""
    length = 10
    ids = torch.randint(1, 50, (size, length))
    mask = torch.ones_like(ids)
    if step == 64:
        mask[5:, 7:] = 0
        ids = ids * mask
    return ids, mask, (ids[:, 1] > 25).long()


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(90):
    ids, mask, label = collate(step)
    loss = nn.functional.cross_entropy(model(ids, mask), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 16 == 0 or not loss.isfinite():
        print(step, loss.item())
