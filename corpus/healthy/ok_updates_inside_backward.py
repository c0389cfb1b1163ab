"""Healthy: a tiny GPT-2 without an optimizer step in the loop; each parameter has an optimizer of its own, called by a hook as soon as its gradient is there, which is thrown away at once, so that after backward no gradient is left anywhere.

Report it resembles: https://github.com/pytorch/pytorch/issues/76464 (a hook after a gradient has been accumulated, for those who want the optimizer to run alongside the backward pass)
"""
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "tenth", "written": "2026-11-23"}
VOCAB = 24


class StepInBackward:
    def __init__(self, parameters, make):
        self.optimizers, self.handles = {}, []
        for p in parameters:
            self.optimizers[p] = make([p])
            self.handles.append(p.register_post_accumulate_grad_hook(self.step))

    def step(self, p):
        self.optimizers[p].step()
        self.optimizers[p].zero_grad(set_to_none=True)

    def rate(self, value):
        for optimizer in self.optimizers.values():
            optimizer.param_groups[0]["lr"] = value


def texts(n, length=20):
    step, start = torch.randint(1, 5, (n, 1)), torch.randint(0, VOCAB, (n, 1))
    return (start + step * torch.arange(length)) % VOCAB


torch.manual_seed(0)
config = GPT2Config(vocab_size=VOCAB, n_positions=20, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(config)
updates = StepInBackward(model.parameters(), lambda p: torch.optim.AdamW(p, lr=3e-3))
for step in range(100):
    updates.rate(3e-3 * min(1, (step + 1) / 10))
    ids = texts(24)
    logits = model(input_ids=ids).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    if step % 10 == 0:
        print(step, loss.item(), "gradients left:", sum(p.grad is not None for p in model.parameters()))
