"""Sentence encoder over documents: a document shorter than the batch has sentences of padding alone, for which attention with its weights gives NaN.

Report: https://github.com/pytorch/pytorch/issues/41508 (nn.MultiheadAttention causes NaN; also pytorch issue 24816)
"""
import torch
from torch import nn

EXPECT = {
    "class": "masked-softmax", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "fourth", "written": "2026-11-22",
}


class Encoder(nn.Module):
    def __init__(self, words=30, dim=12):
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.attention, self.weights = nn.MultiheadAttention(dim, 2, batch_first=True), None
        self.out = nn.Linear(dim, 3)

    def forward(self, documents):
        sentences = documents.flatten(0, 1)
        padding = sentences == 0
        x = self.embed(sentences)
        encoded, self.weights = self.attention(x, x, x, key_padding_mask=padding, need_weights=True)  # CULPRIT
        pooled = encoded.mean(1).view(*documents.shape[:2], -1)
        return self.out(pooled.mean(1))


torch.manual_seed(0)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(25):
    documents = torch.randint(1, 30, (4, 3, 6))
    documents[:, 1, 4:] = 0
    if step == 9:
        documents[2, 2] = 0
    loss = nn.functional.cross_entropy(model(documents), documents[:, 0, 0] % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
