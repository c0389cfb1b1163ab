"""Healthy: policy optimisation of a tiny GPT-2 by groups whose loss reads zero in every step; the ratio is one where it is computed and the advantages of a group add up to nothing, the gradient is there all the same.

Report it resembles: https://github.com/huggingface/trl/issues/3452 (the loss of GRPO is zero in the log, which is cosmetic)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "eighth", "written": "2026-11-22"}
GROUP, PROMPTS, LENGTH = 8, 3, 5


@torch.no_grad()
def complete(model, prompts):
    model.eval()
    ids = prompts.repeat_interleave(GROUP, 0)
    for _ in range(LENGTH):
        logits = model(input_ids=ids).logits[:, -1]
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
    model.train()
    return ids


def rewards_of(completions):
    return (completions < 10).float().mean(1)


def group_advantages(rewards):
    groups = rewards.view(PROMPTS, GROUP)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def clipped_loss(log_probs, old, advantage, low=0.2, high=0.2):
    ratio = (log_probs - old).exp()
    bounded = ratio.clamp(1 - low, 1 + high)
    return -torch.minimum(ratio * advantage[:, None], bounded * advantage[:, None]).mean()


torch.manual_seed(0)
config = GPT2Config(vocab_size=30, n_positions=12, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
policy = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
for step in range(60):
    ids = complete(policy, torch.randint(0, 30, (PROMPTS, 3)))
    rewards = rewards_of(ids[:, 3:])
    advantage = group_advantages(rewards)
    logits = policy(input_ids=ids[:, :-1]).logits[:, 2:]
    log_probs = logits.log_softmax(-1).gather(2, ids[:, 3:, None]).squeeze(2)
    loss = clipped_loss(log_probs, log_probs.detach(), advantage)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}", rewards.mean().item())
