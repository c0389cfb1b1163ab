"""RL fine-tuning: the importance ratio overflows for one stale token; the clipped branch hides it in the loss, not in backward.

Report: https://github.com/THUDM/slime/pull/2198 (log-ratios are clamped before exp for this reason)
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
policy = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
opt = torch.optim.AdamW(policy.parameters(), 1e-3)


def policy_loss(new, old, adv):
    ratio = torch.exp(new - old)  # CULPRIT
    return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()


for step in range(50):
    tokens = torch.randint(0, 12, (4, 9))
    new = policy(tokens[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2)
    old = new.detach() + 0.05 * torch.randn(4, 8)
    if step == 33:
        old[2, 5] = -140.0  # the rollout engine sampled with another temperature
    adv = torch.ones(4, 8)
    loss = policy_loss(new, old, adv)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
print("reproduced", policy[1].weight.isnan().any().item())
