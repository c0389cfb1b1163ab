"""Topic model on sentence vectors of a small BERT: the tokens are averaged by their mask, and a sentence that consists of stop words only has no token left.

Report: https://github.com/autoliuweijie/BERT-whitening-pytorch/issues/13 (the mean with the mask as it is written there, (hidden * mask).sum / mask.sum, without a bound)
"""
import re

import torch
from pydoc_data.topics import topics
from torch import nn
from transformers import BertConfig, BertModel

EXPECT = {
    "class": "late-nonfinite", "framework": "transformers", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 50,
    "set": "seventh", "written": "2026-11-22",
}
STOP = set("a an and are as at be but by can for from has if in is it its not of on or such that the then there these this to was when which will with".split())


def sentences():
    for label, key in enumerate(("assert", "class", "with", "import")):
        for sentence in re.split(r"[.:\n]\s", topics[key]):
            words = re.findall(r"[a-z]+", sentence.lower())[:12]
            if words:
                yield label, words


class Vectors(nn.Module):
    def __init__(self, words):
        super().__init__()
        config = BertConfig(vocab_size=words, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=12)
        self.bert, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(16, 4)

    def pool(self, hidden, mask):
        mask = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1)  # CULPRIT

    def forward(self, ids, present, content):
        hidden = self.bert(input_ids=ids, attention_mask=present).last_hidden_state
        return self.head(self.pool(hidden, content))


data = list(sentences())
vocabulary = {w: i for i, w in enumerate(sorted({w for _, words in data for w in words}), 1)}
only_stop = [item for item in data if all(w in STOP for w in item[1])] or [(2, ["as", "it", "is"])]
data = [item for item in data if not all(w in STOP for w in item[1])]


def batch(items):
    ids, content = torch.zeros(len(items), 12, dtype=torch.long), torch.zeros(len(items), 12)
    for row, (_, words) in enumerate(items):
        for column, word in enumerate(words):
            ids[row, column], content[row, column] = vocabulary[word], float(word not in STOP)
    return ids, (ids > 0).long(), content, torch.tensor([label for label, _ in items])


torch.manual_seed(0)
model = Vectors(len(vocabulary) + 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
order = [data[i] for i in torch.randint(0, len(data), (640,))]
order.insert(8 * 50 + 3, only_stop[0])
for step in range(80):
    ids, present, content, label = batch(order[8 * step : 8 * step + 8])
    loss = nn.functional.cross_entropy(model(ids, present, content), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
