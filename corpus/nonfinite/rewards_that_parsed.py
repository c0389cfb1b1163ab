"""GRPO on a tiny GPT-2: a completion that cannot be parsed has no reward (NaN, left out on purpose); a group in which a single one could be parsed has a spread over n - 1 = 0.

Report: https://github.com/huggingface/trl/pull/5773 (a group with one reward that is not NaN: nanstd is NaN and spoils the valid sample)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "born-without-gradient", "framework": "transformers", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 30,
    "set": "eighth", "written": "2026-11-22",
}
GROUP, PROMPTS, LENGTH = 4, 3, 6


def reward_of(completion):
    """Share of even tokens; token 0 breaks the format."""
    reward = (completion % 2 == 0).float().mean(1)
    return torch.where((completion == 0).any(1), torch.full_like(reward, float("nan")), reward)


@torch.no_grad()
def advantages(rewards):
    groups = rewards.view(PROMPTS, GROUP)
    valid = ~groups.isnan()
    mean = groups.nanmean(1, keepdim=True)
    spread = (groups - mean).square().nansum(1, keepdim=True) / (valid.sum(1, keepdim=True) - 1)  # CULPRIT
    scaled = (groups - mean) / (spread.clamp(min=0).sqrt() + 1e-4)
    return torch.where(valid, scaled, torch.zeros_like(scaled)).flatten()


class Sampler:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def __call__(self, prompts):
        ids = prompts.repeat_interleave(GROUP, 0)
        for _ in range(LENGTH):
            logits = self.model(input_ids=ids).logits[:, -1]
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        return ids


def token_log_probs(model, ids, start):
    logits = model(input_ids=ids[:, :-1]).logits[:, start - 1 :]
    return logits.log_softmax(-1).gather(2, ids[:, start:, None]).squeeze(2)


torch.manual_seed(5)
config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
policy = GPT2LMHeadModel(config)
sampler = Sampler(policy)
optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
for step in range(120):
    prompts = torch.randint(1, 40, (PROMPTS, 3))
    ids = sampler(prompts)
    rewards = reward_of(ids[:, 3:])
    advantage = advantages(rewards)
    log_probs = token_log_probs(policy, ids, 3)
    ratio = (log_probs - log_probs.detach()).exp()
    loss = -(ratio * advantage[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), rewards.nanmean().item())
