"""Soft prompts for a small BERT that sorts snippets of the Python help topics.

Story: a little BERT is trained on the snippets first; then the body is frozen and only a soft
prompt and a new head shall be tuned with the transformers Trainer.  The head improves, the
prompt vectors in the saved file are the random ones of the start.
Based on forum questions of the kind "my soft prompt does not change" where the prompt is a bare
tensor with requires_grad=True; written from general knowledge of them.
"""
import os
import tempfile

import pydoc_data.topics
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, Trainer, TrainingArguments

EXPECT = {
    "class": "x", "kind": "unregistered-parameter", "cut_marker": "CUT", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

SEQ, PROMPT = 32, 6


class Snippets(Dataset):
    """Byte snippets; the label says from which of the longest topics it comes."""

    def __init__(self, first, last):
        texts = sorted(pydoc_data.topics.topics.values(), key=len, reverse=True)[first:last]
        self.items = []
        for label, text in enumerate(texts):
            raw = text.encode("ascii", "replace")
            for lo in range(0, min(len(raw), 9000) - SEQ, SEQ):
                self.items.append((list(raw[lo:lo + SEQ]), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, label = self.items[i]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(label)}


class TopicClassifier(nn.Module):
    def __init__(self, body, classes):
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.config.hidden_size, classes)

    def forward(self, input_ids, labels):
        hidden = self.body(input_ids=input_ids).last_hidden_state.mean(1)
        logits = self.head(hidden)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class PromptTuned(nn.Module):
    def __init__(self, body, classes):
        super().__init__()
        self.body = body.requires_grad_(False)
        dim = body.config.hidden_size
        self.prompt = torch.randn(PROMPT, dim).mul_(0.02).requires_grad_()  # CUT
        self.head = nn.Linear(dim, classes)

    def forward(self, input_ids, labels):
        words = self.body.get_input_embeddings()(input_ids)
        prompt = self.prompt.expand(len(words), -1, -1)
        hidden = self.body(inputs_embeds=torch.cat([prompt, words], 1)).last_hidden_state
        logits = self.head(hidden.mean(1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def fit(model, data, steps, lr, name):
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"topic_{name}"), max_steps=steps, per_device_train_batch_size=16,
        learning_rate=lr, logging_steps=50, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant",
    )
    Trainer(model=model, args=args, train_dataset=data).train()


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=128, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    body = BertModel(config, add_pooling_layer=False)
    fit(TopicClassifier(body, 4), Snippets(0, 4), steps=150, lr=1e-3, name="pretrain")
    tuned = PromptTuned(body, 3)
    fit(tuned, Snippets(4, 7), steps=200, lr=5e-3, name="prompt")
    print("prompt norm", tuned.prompt.norm().item())


if __name__ == "__main__":
    main()
