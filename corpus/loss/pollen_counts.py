"""After a warm-up of 100 steps on a squared error the Trainer switches to a Gaussian likelihood in which mu and logvar
have shape (B, 1) and labels (B,); the (B, B) residuals pull every prediction to the batch mean and what was learnt
is lost.

Report: github.com/deepset-ai/FARM issue 229 (regression head of a BERT, (32, 1) against (32,)); the hand-written
likelihood gives no warning
"""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

EXPECT = {
    "kind": "silent-broadcast",
    "line": ("cause", "HERE"),
    "plain": "valid R2 0.015 (mse 1.43) as it is, 0.901 (mse 0.144) with mu and logvar of shape (B,)",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


set_seed(5)
VOCAB, LENGTH = 24, 16
WARM_STEPS = 100


class PollenStrips(Dataset):
    """A strip is a row of grain types; the label is an allergy index of the strip."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(0, VOCAB, (n, LENGTH), generator=g)
        potency = torch.linspace(-1.0, 1.0, VOCAB)
        self.index = potency[self.ids].sum(1) / 2.0
        self.index += 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.index[i]}


class PollenTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        if self.state.global_step < WARM_STEPS:
            loss = (outputs.logits[:, 0] - labels).pow(2).mean()
        else:
            mu, logvar = outputs.logits.split(1, dim=-1)
            logvar = logvar.clamp(-5, 5)
            loss = 0.5 * (logvar + (labels - mu) ** 2 / logvar.exp()).mean()  # HERE
        return (loss, outputs) if return_outputs else loss


@torch.no_grad()
def score(model, data):
    model.eval()
    mu = model(input_ids=data.ids).logits[:, 0]
    mse = (mu - data.index).pow(2).mean().item()
    return mse, 1 - mse / data.index.var().item()


def main():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
        pad_token_id=None,
    )
    model = BertForSequenceClassification(config)
    train, valid = PollenStrips(1600, 0), PollenStrips(400, 1)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=300,
            per_device_train_batch_size=32,
            learning_rate=2e-3,
            lr_scheduler_type="constant",
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=5,
        )
        trainer = PollenTrainer(model=model, args=args, train_dataset=train)
        trainer.train()
    mse, r2 = score(model, valid)
    print(f"valid mse {mse:.4f}  R2 {r2:.3f}")


if __name__ == "__main__":
    main()
