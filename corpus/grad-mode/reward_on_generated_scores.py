"""Policy gradient on a summariser: the log-probabilities are taken from the scores that generate returns, which is under no_grad.

Report: https://github.com/huggingface/transformers/issues/3720 (disable no_grad for model.generate)
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "grad-mode", "framework": "transformers", "kind": "grad-mode-disabled", "cut_marker": "CUT",
    "set": "fourth", "written": "2026-11-22",
}

torch.manual_seed(0)
config = GPT2Config(vocab_size=20, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=19, pad_token_id=19)
model = GPT2LMHeadModel(config)
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(30):  # supervised warm-up
    ids = (torch.randint(0, 18, (8, 1)) + torch.arange(10)) % 18
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
print("warm", loss.item())
for step in range(10):
    prompt = torch.randint(0, 18, (4, 3))
    made = model.generate(  # CUT
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=5, do_sample=True, output_scores=True, return_dict_in_generate=True
    )
    scores = torch.stack(made.scores, 1).log_softmax(-1)
    taken = made.sequences[:, 3 : 3 + scores.shape[1]]
    logp = scores.gather(2, taken[..., None])[..., 0].clamp(min=-30).sum(1)
    reward = (taken < 9).float().mean(1)
    loss = -(logp * (reward - reward.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
