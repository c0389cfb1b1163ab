"""Emoji model that is tuned for sentiment: its output is handed out as a plain tensor, backward complained, and the loss was wrapped in a new Variable that requires a gradient.

Report: https://github.com/huggingface/torchMoji/issues/21 (loss = Variable(loss, requires_grad=True) and nothing improves; found in outputs.data of model_def)
"""
import torch
from torch import nn
from torch.autograd import Variable

EXPECT = {"class": "cut", "kind": "none-grad", "cut_marker": "CUT", "set": "sixth", "written": "2026-11-22"}


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.vector = nn.Parameter(0.1 * torch.randn(dim))

    def forward(self, h):
        weights = (h @ self.vector).softmax(1)
        return (weights[..., None] * h).sum(1)


class Moji(nn.Module):
    def __init__(self, words=60, dim=12, classes=2, feature_output=False, return_tensor=True):
        super().__init__()
        self.feature_output, self.return_tensor = feature_output, return_tensor
        self.embed = nn.Embedding(words, dim)
        self.lstm_0 = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.attention = Attention(2 * dim)
        self.output_layer = nn.Linear(2 * dim, classes)

    def forward(self, ids):
        h, _ = self.lstm_0(torch.tanh(self.embed(ids)))
        h = self.attention(h)
        outputs = h if self.feature_output else self.output_layer(h)
        if self.return_tensor:
            outputs = outputs.data  # CUT
        return outputs


def fit_model(model, batches, loss_op, optimizer):
    for step, (ids, labels) in enumerate(batches):
        model.train()
        optimizer.zero_grad()
        outputs = model(ids)
        loss = loss_op(outputs, labels)
        loss = Variable(loss, requires_grad=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 5))


def make_batches(count):
    for _ in range(count):
        ids = torch.randint(0, 60, (16, 9))
        yield ids, (ids < 30).sum(1).gt(4).long()


torch.manual_seed(0)
model = Moji()
groups = [
    {"params": model.embed.parameters(), "weight_decay": 1e-6},
    {"params": [p for n, p in model.named_parameters() if not n.startswith("embed")]},
]
fit_model(model, make_batches(60), nn.CrossEntropyLoss(), torch.optim.Adam(groups, lr=1e-2))
