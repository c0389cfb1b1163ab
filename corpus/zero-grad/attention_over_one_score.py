"""Question answering over a knowledge base: attention scores are flattened to one column and softmax runs over that column, so every weight is one and the scorer learns nothing.

Report: https://github.com/DEEP-PolyU/KEQA_WSDM19/issues/2 (softmax over a dimension of size one; also PetrochukM/PyTorch-NLP issue 2)
"""
import torch
from torch import nn

EXPECT = {
    "class": "constant", "kind": "zero-grad", "cut_marker": "CUT", "parameters": ["attn.0.weight", "attn.0.bias", "attn.2.weight", "attn.2.bias"],
    "set": "fifth", "written": "2026-11-22",
}


class PredicateLearner(nn.Module):
    def __init__(self, words=60, dim=12, predicates=8):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, dim, bidirectional=True, dropout=0.0)
        self.attn = nn.Sequential(nn.Linear(3 * dim, dim), nn.Tanh(), nn.Linear(dim, 1))
        self.hidden2tag = nn.Sequential(nn.Linear(3 * dim, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, predicates))

    def forward(self, text):
        x = self.embed(text)
        seq_len, batch_size, dim = x.shape
        outputs, _ = self.lstm(x)
        outputs = outputs.reshape(-1, 2 * dim)
        x = x.reshape(-1, dim)
        attn_weights = nn.functional.softmax(self.attn(torch.cat((x, outputs), 1)), dim=1)  # CUT
        attended = torch.cat((x, attn_weights * outputs), 1)
        tags = self.hidden2tag(attended).view(seq_len, batch_size, -1)
        return tags.mean(0)


torch.manual_seed(0)
net = PredicateLearner()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, 0.5)
for step in range(150):
    question = torch.randint(0, 60, (9, 16))
    predicate = question.max(0).values % 8
    loss = nn.functional.cross_entropy(net(question), predicate)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.6)
    optimizer.step()
    scheduler.step()
    if step % 30 == 0:
        print(step, loss.item(), net.attn[0].weight.grad.abs().max().item())
