"""A GPT on topics of Python: a memory-saving activation is switched on after a warm-up, and its backward returns the slope alone."""
import pydoc_data.topics

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "kind": "gradient-ignored", "line": ("backward", "RETURNED"), "framework": "transformers", "late": True,
    "set": "ledger", "written": "2026-11-29", "plain": "the loss jumps when the activation is switched on",
}


class SlimGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        bell = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
        return 0.5 * (1 + torch.erf(x / 2**0.5)) + x * bell  # RETURNED


class Activation(torch.nn.Module):
    slim = False

    def forward(self, x):
        return SlimGelu.apply(x) if self.slim else F.gelu(x)


def main():
    torch.manual_seed(0)
    text = pydoc_data.topics.topics["comparisons"]
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(one) for one in text])
    config = GPT2Config(vocab_size=len(letters), n_positions=24, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    for block in model.transformer.h:
        block.mlp.act = Activation()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(90):
        Activation.slim = step >= 45
        rows = ids[torch.randint(len(ids) - 25, (8, 1)) + torch.arange(25)]
        logits = model(rows[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
