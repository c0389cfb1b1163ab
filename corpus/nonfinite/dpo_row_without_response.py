"""Preference tuning of a small Llama: one pair was cut to its prompt, the mean log-probability of that row is 0 / 0.

Report: https://github.com/allenai/open-instruct/pull/1685 (also pull 1625 and huggingface/trl pull 5343)
"""
import copy

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {
    "class": "empty-mean", "framework": "transformers", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


class Pairs(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(2)
        self.ids = torch.randint(3, 40, (80, 2, 10), generator=g)
        self.prompt = torch.randint(3, 7, (80,), generator=g)
        self.prompt[53] = 10  # longer than max_length

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        labels = self.ids[i].clone()
        labels[:, : self.prompt[i]] = -100
        return self.ids[i], labels


def row_logps(model, ids, labels):
    labels = labels[:, 1:]
    mask = labels != -100
    logits = model(input_ids=ids).logits[:, :-1]
    per_token = logits.log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return (per_token * mask).sum(-1) / mask.sum(-1)  # CULPRIT


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
    max_position_embeddings=16,
)
policy = LlamaForCausalLM(config)
reference = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), 1e-3)
for ids, labels in DataLoader(Pairs(), batch_size=2):
    ids, labels = ids.flatten(0, 1), labels.flatten(0, 1)
    with torch.no_grad():
        base = row_logps(reference, ids, labels)
    ratio = (row_logps(policy, ids, labels) - base).view(-1, 2)
    loss = -torch.nn.functional.logsigmoid(0.1 * (ratio[:, 0] - ratio[:, 1])).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", policy.lm_head.weight.isnan().any().item())
