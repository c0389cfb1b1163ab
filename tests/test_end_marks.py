"""Tokens that end and pad rows and are never a target, and rows of tokens that end in other ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import backprobe
from backprobe.source.stop_ids import stop_line
from backprobe.source.targets import blanking_lines, padding_id_lines

#: The end mark at which ``generate`` stops; another one, and a padding of its own.
END, OTHER_END, PAD = 0, 19, 1
CLASSES, LONGEST = 20, 12
Ids = list[int]


class Model(nn.Module):
    """A recurrent language model. It may be given a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.body = nn.Embedding(CLASSES, 16), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: Any, mask: Any = None) -> Any:
        x = self.tokens(ids)
        if mask is not None:
            x = x * mask.unsqueeze(-1).float()
        return self.head(self.body(x)[0])


def generate(model: Model, ids: Any) -> Any:
    for _ in range(LONGEST):
        token = model(ids)[0, -1].argmax()
        if token.item() == END:  # STOP
            break
        ids = torch.cat([ids, token.view(1, 1)], 1)
    return ids


Loss = Callable[[Model, list[Ids]], Any]


def found_in(loss: Loss, steps: int = 6, longest: int = LONGEST) -> list[Any]:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with backprobe.trace(model) as trace:
        for step in range(steps):
            texts = [torch.randint(3, 18, (n,)).tolist() for n in torch.randint(3, longest - step % 3, (8,)).tolist()]
            optimizer.zero_grad()
            loss(model, texts).backward()
            optimizer.step()
    return [one for one in trace.findings if one.kind == "end-never-learned"]


def ended(texts: list[Ids], end: int = END) -> list[Ids]:
    return [[*text, end] for text in texts]


def begun(texts: list[Ids]) -> list[Ids]:
    return [[2, *text] for text in texts]


def batch(rows: list[Ids], pad: int = END, width: int = 0, multiple: int = 1, left: bool = False) -> tuple[Any, Any]:
    """Return padded ids, and a mask that is 1 for what is no padding."""
    width = width or -(-max(map(len, rows)) // multiple) * multiple
    ids, mask = torch.full((len(rows), width), pad), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        where = slice(width - len(row), None) if left else slice(len(row))
        ids[i, where], mask[i, where] = torch.tensor(row), 1
    return ids, mask


def compared(scores: Any, targets: Any, ignored: int = -100) -> Any:
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=ignored)


def shifted(scores: Any, labels: Any) -> Any:
    """Compare as the models of transformers do."""
    return compared(scores, F.pad(labels, (0, 1), value=-100)[:, 1:])


def blanked(ids: Any, token: int = END) -> Any:
    labels = ids.clone()
    labels[labels == token] = -100  # BLANKED
    return labels


def with_mask(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    return shifted(model(ids, mask), blanked(ids))


def of_fixed_width_with_mask(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts), width=20)
    return shifted(model(ids, mask), blanked(ids))


def with_mask_of_padding(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    return shifted(model(ids, (mask == 0).logical_not()), blanked(ids))


def left_padded(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts), left=True)
    return shifted(model(ids, mask), blanked(ids))


def by_masked_fill(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    targets = ids[:, 1:]
    return compared(model(ids[:, :-1]), targets.masked_fill(targets == END, -100))


def by_where(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    targets = ids[:, 1:]
    return compared(model(ids[:, :-1]), torch.where(targets != END, targets, -100))


def by_slice(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(texts))
    return compared(model(ids)[:, :-1], blanked(ids)[:, 1:])


def ignoring(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    return compared(model(ids[:, :-1]), ids[:, 1:], ignored=END)


def ignoring_in_two_dimensions(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    return F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:], ignore_index=END)


def padded_apart(model: Model, texts: list[Ids]) -> Any:
    return compared(model(batch(begun(texts))[0]), batch(ended(texts))[0], ignored=END)


def of_fixed_width(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)), width=20)
    return compared(model(ids[:, :-1]), ids[:, 1:], ignored=END)


def with_prompt(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    labels = blanked(ids)
    labels[:, :2] = -100
    return shifted(model(ids, mask), labels)


def by_product(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    targets = ids[:, 1:]
    losses = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), targets.flatten(), reduction="none")
    counted = (targets != END).float()  # COUNTED
    return (losses.view_as(targets) * counted).sum() / counted.sum()


def by_class_weight(model: Model, texts: list[Ids]) -> Any:
    ids, _ = batch(ended(begun(texts)))
    weight = torch.ones(CLASSES)
    weight[END] = 0
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), weight)  # WEIGHTED


def kept_by_product(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    losses = F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()


def from_lists(model: Model, texts: list[Ids]) -> Any:
    rows = ended(texts)
    width = max(map(len, rows))
    padded = [row + [END] * (width - len(row)) for row in rows]
    labels = torch.tensor([[-100 if one == END else one for one in row] for row in padded])  # IN A LIST
    return shifted(model(torch.tensor(padded)), labels)


#: Name -> a loss with the mistake, whether a mask shows it, and the comment at the line that is named.
WRONG: dict[str, tuple[Loss, bool, str]] = {
    "with a mask": (with_mask, True, "# BLANKED"),
    "of a fixed width, with a mask": (of_fixed_width_with_mask, True, "# BLANKED"),
    "with a mask of booleans": (with_mask_of_padding, True, "# BLANKED"),
    "left padded": (left_padded, True, "# BLANKED"),
    "with a prompt": (with_prompt, True, "# BLANKED"),
    "by masked_fill": (by_masked_fill, False, "masked_fill(targets == END"),
    "by where": (by_where, False, "torch.where(targets != END"),
    "by a slice": (by_slice, False, "# BLANKED"),
    "ignored": (ignoring, False, "ignore_index="),
    "ignored in two dimensions": (ignoring_in_two_dimensions, False, "ignore_index="),
    "padded apart": (padded_apart, False, "ignore_index="),
    "of a fixed width": (of_fixed_width, False, "ignore_index="),
    "by a product": (by_product, False, "# COUNTED"),
    "by the weight of a class": (by_class_weight, False, "# WEIGHTED"),
    "from lists": (from_lists, False, "# IN A LIST"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_end_mark_that_is_padding(name: str) -> None:
    loss, masked, line = WRONG[name]
    (found,) = found_in(loss)
    # Steps that are not inspected do not show what the last target of the longest row was.
    rows = 24 if name in ("by masked_fill", "by where") else 48
    assert found.title.startswith(f"token 0 ends all {rows} rows that were compared and pads the shorter ones")
    assert (found.confidence, found.evidence["mask"]) == ("certain" if masked else "likely", masked)
    causes = [one.site.text for one in found.sites if one.role == "cause"]
    assert any(line in one for one in causes), causes
    assert [one.site.text for one in found.sites if one.role == "stops"] == ["if token.item() == END:  # STOP"]


def test_lines_that_were_seen_are_the_only_ones() -> None:
    (found,) = found_in(with_mask)
    assert [one.role for one in found.sites] == ["cause", "compared", "stops", "failed"]
    assert "candidates" not in found.evidence


def ends(model: Model, texts: list[Ids], end: int = OTHER_END, pad: int = PAD, **how: Any) -> Any:
    """Return the loss of rows that end with `end`, padded with `pad`, which is left out."""
    ids, mask = batch(ended(texts, end), pad, **how)
    return shifted(model(ids, mask), blanked(ids, pad))


def only_texts(model: Model, texts: list[Ids], pad: int = PAD, mask: bool = False, **how: Any) -> Any:
    """Return the loss of rows without end marks, padded with `pad`, which is left out."""
    ids, counted = batch(texts, pad, **how)
    return shifted(model(ids, counted if mask else None), blanked(ids, pad))


def kept(model: Model, texts: list[Ids]) -> Any:
    """The first end mark of each row is a target."""
    ids, mask = batch(ended(texts))
    return shifted(model(ids, mask), ids.masked_fill(mask == 0, -100))


def kept_without_mask(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    return shifted(model(ids), ids.masked_fill(mask == 0, -100))


def kept_with_prompt(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :2] = -100
    return shifted(model(ids, mask), labels)


def blocks(model: Model, texts: list[Ids]) -> Any:
    ids = torch.randint(3, 18, (8, LONGEST))
    return shifted(model(ids), ids.clone())


def blocks_with_ends(model: Model, texts: list[Ids]) -> Any:
    """Blocks cut from a text, in which a token that is no end mark is left out."""
    ids = torch.randint(3, 18, (8, LONGEST))
    ids[:, 4] = END
    return shifted(model(ids), blanked(ids))


def masked_language_model(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    chosen = (torch.rand(ids.shape) < 0.5) & (mask == 1) & (ids != END)
    return compared(model(ids.masked_fill(chosen, 18), mask), ids.masked_fill(~chosen, -100))


def tags(model: Model, texts: list[Ids]) -> Any:
    ids, mask = batch(ended(texts))
    return compared(model(ids, mask), ((ids * 7) % 5).masked_fill(ids == END, -100))


def makemore(model: Model, texts: list[Ids]) -> Any:
    """Zeros begin, pad and end the rows; the first one is a target."""
    ids, _ = batch([[0, *text] for text in texts], width=LONGEST + 1)
    targets = torch.full_like(ids, -1)
    for i, text in enumerate(texts):
        targets[i, : len(text) + 1] = torch.tensor([*text, 0])
    return compared(model(ids), targets, ignored=-1)


def one_wider(model: Model, texts: list[Ids]) -> Any:
    """Each row has a padding of its own at its end, and an end mark."""
    return ends(model, texts, width=max(map(len, texts)) + 2)


RIGHT: dict[str, Loss] = {
    "an end mark of its own": ends,
    "an end mark of its own, of a fixed width": lambda m, t: ends(m, t, width=20),
    "an end mark of its own, left padded": lambda m, t: ends(m, t, left=True),
    "an end mark of its own, one wider": one_wider,
    "an end mark of its own, with the padding at which the script stops": lambda m, t: ends(m, t, pad=END, width=20),
    "a padding of its own": lambda m, t: ends(m, t, end=END),
    "no end mark": only_texts,
    "no end mark, with a mask": lambda m, t: only_texts(m, t, mask=True),
    "no end mark, of a fixed width": lambda m, t: only_texts(m, t, width=20),
    "no end mark, of a fixed width with a mask": lambda m, t: only_texts(m, t, width=20, mask=True),
    "no end mark, one wider": lambda m, t: only_texts(m, t, width=LONGEST),
    "no end mark, of a multiple": lambda m, t: only_texts(m, t, multiple=4),
    "no end mark, left padded": lambda m, t: only_texts(m, t, left=True),
    "the first is kept": kept,
    "the first is kept, without a mask": kept_without_mask,
    "the first is kept, with a prompt": kept_with_prompt,
    "the first is kept by a product": kept_by_product,
    "blocks": blocks,
    "blocks, one token left out": blocks_with_ends,
    "masked": masked_language_model,
    "tags": tags,
    "makemore": makemore,
}


@pytest.mark.parametrize("name", RIGHT)
def test_rows_that_end_in_other_ways(name: str) -> None:
    assert found_in(RIGHT[name]) == []


def test_padding_that_is_a_target_once_is_learned() -> None:
    seen: list[int] = []

    def at_last(model: Model, texts: list[Ids]) -> Any:
        seen.append(len(seen))
        return kept(model, texts) if len(seen) > 4 else with_mask(model, texts)

    assert found_in(at_last) == []


def test_few_calls_or_rows_are_not_enough() -> None:
    assert found_in(with_mask, steps=2) == []
    assert found_in(lambda m, t: with_mask(m, [[*range(3, 18), *range(3, 18)], t[0]])) != []
    assert found_in(lambda m, t: with_mask(m, [[*range(3, 18), *range(3, 18)], t[0]]), steps=3) == []


def test_one_length_has_no_padding() -> None:
    assert found_in(lambda m, t: by_masked_fill(m, [[3, 4, 5, 6, 7, 8], [4, 9, 8, 3, 5, 7]] * 4)) == []


@pytest.fixture
def source(tmp_path: Any) -> Iterator[Callable[[str], list[str]]]:
    def written(text: str) -> list[str]:
        path = tmp_path / "train.py"
        path.write_text(text)
        return [str(path)]

    yield written


def test_lines_that_leave_targets_out(source: Callable[[str], list[str]]) -> None:
    files = source(
        "labels[labels == PAD] = -100\n"
        "labels = [-100 if one == PAD else one for one in row]\n"
        "loss = F.cross_entropy(scores, labels, ignore_index=-100)\n"
        "count = (labels != -100).sum()\n"
        "labels[:, :3] = -100\n"
        "tokenizer.pad_token = tokenizer.eos_token\n"
    )
    assert [one.line for one in blanking_lines(files, -100)] == [1, 2]
    assert [one.line for one in blanking_lines(files, 0)] == [3]
    assert [one.line for one in padding_id_lines(files)] == [6]


def test_lines_that_stop_to_draw_tokens(source: Callable[[str], list[str]]) -> None:
    (file,) = source(
        "def train():\n"
        "    for epoch in range(3):\n"
        "        if epoch == END: break\n"
        "def draw(limit):\n"
        "    token = scores.argmax()\n"
        "    if len(ids) == 2: return ids\n"
        "    if step % 2 == 2: break\n"
        "    if temperature == 2: return token\n"
        "    if token == limit: break\n"
        "    if token == END: return ids\n"
    )
    found = stop_line(file, {"END": 2, "limit": 2}, 2)
    assert found is not None and (found.line, found.function) == (10, "draw")
    assert stop_line(file, {"END": 3}, 2) is None
