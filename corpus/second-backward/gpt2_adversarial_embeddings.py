"""Fine-tuning of a tiny GPT-2 with adversarial embeddings in the last phase: the attack takes its gradient from the loss that is added to the total afterwards."""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "late-second-backward", "framework": "transformers", "kind": "second-backward", "bridge_marker": "REUSED", "step": 92,
    "set": "late", "written": "2026-11-22",
}


def perturbed(embeddings, loss, size):
    (gradient,) = torch.autograd.grad(loss, embeddings)
    return embeddings + size * gradient / (gradient.norm(dim=-1, keepdim=True) + 1e-8)


def forward(model, embeddings, ids):
    return model(inputs_embeds=embeddings, labels=ids).loss


def batches(count):
    for _ in range(count):
        yield (torch.randint(0, 30, (4, 1)) + 7 * torch.arange(10)) % 30


torch.manual_seed(0)
config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
decay = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=2e-3)
phases = [{"count": 92, "adversarial": 0.0}, {"count": 40, "adversarial": 0.5}]
for phase in phases:
    for ids in batches(phase["count"]):
        embeddings = model.transformer.wte(ids)
        loss = forward(model, embeddings, ids)
        total = loss
        if phase["adversarial"] > 0:
            attacked = forward(model, perturbed(embeddings, loss, 0.1), ids)
            total = loss + phase["adversarial"] * attacked  # REUSED
        opt.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    print("phase", phase, "loss", round(loss.item(), 4))
