"""Tiny GPT-2 whose residual stream is to be logged: the forward hook was put on `transformer.h`, the list of blocks, which is walked through and never called itself.

Report: https://github.com/yoshitomo-matsubara/torchdistill/pull/139 (a ModuleList has no forward, a hook on it does nothing)
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

EXPECT = {
    "class": "hook", "framework": "transformers", "kind": "hook-never-fires", "hook_marker": "HOOK", "module": "transformer.h",
    "set": "eighth", "written": "2026-11-22",
}


class ForwardHookManager:
    def __init__(self, model):
        self.model, self.io, self.handles = model, {}, []

    def add_hook(self, path):
        module = self.model.get_submodule(path)
        self.handles.append(module.register_forward_hook(self.saver(path)))  # HOOK

    def saver(self, path):
        def save(module, inputs, output):
            hidden = output[0] if isinstance(output, tuple) else output
            self.io[path] = hidden.detach().float().norm(dim=-1).mean().item()

        return save

    def pop(self):
        io, self.io = self.io, {}
        return io


def batches(steps, size=8, length=12):
    for _ in range(steps):
        start, stride = torch.randint(0, 32, (size, 1)), torch.randint(1, 4, (size, 1))
        yield (start + stride * torch.arange(length)) % 32


torch.manual_seed(0)
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=24, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
manager = ForwardHookManager(model)
for path in ("transformer.wte", "transformer.h", "transformer.ln_f"):
    manager.add_hook(path)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
scheduler = get_cosine_schedule_with_warmup(optimizer, 10, 70)
for step, ids in enumerate(batches(70)):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    norms = manager.pop()
    if step % 20 == 0:
        print(step, loss.item(), {k: round(v, 3) for k, v in norms.items()}, "stack", norms.get("transformer.h", "-"))
