"""RL fine-tuning of a tiny Llama with a faster norm for generation, which scales its input in place; a step with long completions leaves the generation early and with it the switch back.

Report: https://github.com/unslothai/unsloth/issues/304 (PPO training fails with a hidden state that was modified in place by the code for inference)
"""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {
    "class": "late-inplace", "framework": "transformers", "kind": "inplace", "mutating_marker": "MUTATES", "step": 90,
    "set": "eighth", "written": "2026-11-22",
}


class FastNorm(nn.Module):
    def __init__(self, norm, mode):
        super().__init__()
        self.weight, self.eps, self.mode = norm.weight, norm.variance_epsilon, mode

    def forward(self, hidden):
        if self.mode["generating"]:
            return self.inference(hidden)
        h = hidden.float()
        return self.weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)).to(hidden.dtype)

    def inference(self, hidden):
        buffer = hidden.to(torch.float32)  # a copy in half precision
        variance = buffer.square().mean(-1, keepdim=True)
        buffer *= torch.rsqrt(variance + self.eps)  # MUTATES
        return buffer.to(hidden.dtype) * self.weight


def patch(model, mode):
    for layer in model.model.layers:
        layer.input_layernorm = FastNorm(layer.input_layernorm, mode)
        layer.post_attention_layernorm = FastNorm(layer.post_attention_layernorm, mode)
    model.model.norm = FastNorm(model.model.norm, mode)


class Rollouts:
    def __init__(self, model, mode, longest=10):
        self.model, self.mode, self.longest = model, mode, longest

    @torch.no_grad()
    def __call__(self, prompts):
        self.mode["generating"] = True
        ids = prompts
        while not (ids[:, 3:] == 1).any(1).all():  # until all have ended
            if ids.shape[1] >= self.longest:
                return ids
            logits = self.model(input_ids=ids, use_cache=False).logits[:, -1]
            logits[:, 1] += 1.8  # shorter completions
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        self.mode["generating"] = False
        return ids


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64
)
model, mode = LlamaForCausalLM(config), {"generating": False}
patch(model, mode)
rollouts = Rollouts(model, mode, longest=16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
baseline = 0.0
for step in range(120):
    ids = rollouts(torch.randint(2, 12, (4, 3)))
    ended = (ids[:, 3:] == 1).int().cumsum(1)
    mask = ((ended == 0) | ((ended == 1) & (ids[:, 3:] == 1))).float()
    reward = ((ids[:, 3:] % 3 == 0).float() * mask).sum(1) / mask.sum(1)
    log_probs = model(input_ids=ids[:, :-1], use_cache=False).logits[:, 2:].log_softmax(-1)
    taken = log_probs.gather(2, ids[:, 3:, None]).squeeze(2)
    loss = -((reward - baseline)[:, None] * taken * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    if step % 10 == 0:
        print(step, loss.item(), tuple(ids.shape))
