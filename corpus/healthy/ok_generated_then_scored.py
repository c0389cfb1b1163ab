"""Healthy: PPO on a language model: tokens are generated without gradient, old and reference log-probabilities computed under no_grad, the loss from a forward of its own.

Report it resembles: https://github.com/huggingface/trl/issues/73 (how the gradients are computed)
"""
import copy

import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "fourth", "written": "2026-11-22"}


def log_probs(model, ids):
    logits = model(input_ids=ids).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]


torch.manual_seed(0)
config = GPT2Config(vocab_size=20, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=19, pad_token_id=19)
model = GPT2LMHeadModel(config)
reference = copy.deepcopy(model).eval()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(20):
    prompt = torch.randint(0, 18, (6, 3))
    model.eval()
    ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, min_new_tokens=6, do_sample=True)
    with torch.no_grad():
        old, ref = log_probs(model, ids), log_probs(reference, ids)
    reward = (ids[:, 3:] < 9).float().mean(1) - 0.1 * (old - ref).mean(1)
    advantage = ((reward - reward.mean()) / (reward.std() + 1e-8))[:, None]
    model.train()
    for _ in range(2):
        new = log_probs(model, ids)
        ratio = (new - old).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)[:, 2:].mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
print(reward.mean().item())
