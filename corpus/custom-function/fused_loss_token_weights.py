"""Fused linear cross entropy, own Function: gradients are made in forward and scaled in backward by the first token's upstream gradient only.

Report: https://github.com/linkedin/Liger-Kernel/issues/968 (mended in pull 1298)
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "third", "written": "2026-11-22",
}


class FusedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, target, chunk):
        losses, grad_hidden, grad_weight = [], torch.empty_like(hidden), torch.zeros_like(weight)
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            logits = hidden[rows] @ weight.t()
            logp = logits.log_softmax(1)
            losses.append(-logp.gather(1, target[rows, None])[:, 0])
            d = logp.exp()
            d[torch.arange(len(d)), target[rows]] -= 1.0
            grad_hidden[rows] = d @ weight
            grad_weight += d.t() @ hidden[rows]
        ctx.save_for_backward(grad_hidden, grad_weight)
        return torch.cat(losses)

    @staticmethod
    def backward(ctx, grad_output):
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grad_output.flatten()[0]
        return grad_hidden * scale, grad_weight * scale, None, None


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.lm_head = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30, bias=False)

    def forward(self, ids):
        hidden = self.mix(self.embed(ids[:, :-1]))[0]
        return FusedLinearCrossEntropy.apply(hidden.flatten(0, 1), self.lm_head.weight, ids[:, 1:].flatten(), 8)  # APPLY


torch.manual_seed(0)
model = LanguageModel()
opt = torch.optim.AdamW(model.parameters(), 2e-3)
for step in range(30):
    ids = torch.randint(0, 30, (4, 9))
    per_token = model(ids)
    weight = torch.linspace(0.2, 1.8, 8).repeat(4)  # later tokens count more
    loss = (per_token * weight).sum() / weight.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("last loss", loss.item())
