"""How the user's code steps learning rate schedulers, and what it gives them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from ..records import Site
from .calls import values_given_to
from .index import FUNCTIONS, LOOPS, SourceIndex, arguments_of, container, index_of, indexes, last_name, spans

#: Parts of the names of objects whose ``step`` is not that of a scheduler.
_OTHER_STEPS = ("opt", "sgd", "adam", "scaler", "env", "prof", "engine")
#: Parts of the names of schedulers.
_SCHEDULERS = ("sched", "plateau", "warmup", "anneal", "cosine")
#: Functions that take a scheduler and do not step it.
_HARMLESS = frozenset(
    ("prepare", "print", "len", "isinstance", "type", "id", "repr", "str", "hasattr", "getattr", "append", "zip")
) | {"SequentialLR", "ChainedScheduler", "list", "tuple", "dict", "vars", "info", "save"}
#: Words for metrics that are good if they are high, and if they are low.
_HIGH_IS_GOOD = frozenset(
    ("acc", "accuracy", "accuracies", "f1", "auc", "auroc", "iou", "miou", "dice", "bleu", "rouge", "precision")
) | {"recall", "r2", "psnr", "ssim", "reward", "rewards", "score", "correct", "ndcg", "mrr", "hits", "sharpe"}
_HIGH_IS_GOOD |= {"kappa", "mcc", "matthews", "jaccard", "spearman", "pearson", "nse", "auprc", "top1", "top5"}
_LOW_IS_GOOD = frozenset(
    ("loss", "losses", "err", "error", "errors", "mse", "mae", "rmse", "ppl", "perplexity", "nll", "bce", "cost", "wer")
) | {"cer", "fid", "residual", "distance", "logloss", "mape", "smape", "brier", "crps", "deviance"}
#: Words in the name of a metric whose sign was turned round.
_TURNED_ROUND = frozenset(("neg", "negative", "negated", "minus", "inverted"))


def is_step_call(site: Site) -> bool:
    """Return whether a call of a method ``step`` stands at `site`."""
    return next(_step_calls(index_of(site.file), site.line), None) is not None


def may_be_stepped(files: Collection[str], made: Site, known: Collection[Site]) -> bool:
    """Return whether the scheduler made at `made` may be stepped by a line of `files`, or by a library that gets it.

    :param known: the lines that step optimizers.
    """
    read = list(indexes(files))
    if any(_is_step_of_scheduler(index, call, known) for index in read for call in _step_calls(index)):
        return True
    names = _names_given(made)
    own = {scope.name for index in read for scope in index.opened.values() if isinstance(scope.node, _DEFINITIONS)}
    return any(_passes_on(index, call, names, own, made) for index in read for call in index.of(ast.Call))


def returned_at(made: Site) -> Site | None:
    """Return the statement that returns the scheduler made at `made` from its function, if there is one."""
    index, names = index_of(made.file), _names_given(made)
    for statement in index.of(ast.Return):
        around = index.scopes[statement].function.node
        is_apart = isinstance(around, FUNCTIONS) and spans(around, made.line) and not spans(statement, made.line)
        if is_apart and names & {last_name(one) for one in index.walk(statement)}:
            return index.site(statement)
    return None


_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


def _step_calls(index: SourceIndex, line: int | None = None) -> Iterator[ast.Call]:
    """Yield the calls of a method ``step`` in a file; only those on `line` if it is given."""
    for call in index.of(ast.Call):
        is_step = isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        if is_step and (line is None or spans(call, line)):
            yield call


def _is_step_of_scheduler(index: SourceIndex, call: ast.Call, known: Collection[Site]) -> bool:
    """Return whether a call of ``step`` may be that of a scheduler, judged by the name of its object.

    :param known: the lines that step optimizers.
    """
    if any(site.file == index.file and spans(call, site.line) for site in known):
        return False
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = last_name(container(receiver)).lower()
    if any(part in name for part in _SCHEDULERS):
        return True
    return not any(part in name for part in _OTHER_STEPS)


def _names_given(made: Site) -> set[str]:
    """Return the names that the statement at `made` assigns to."""
    index = index_of(made.file)
    written = (write.target for write in index.writes if write.how == "assign" and spans(write.node, made.line))
    return {last_name(one) for target in written for one in index.walk(target)} - {"", "self"}


def _passes_on(index: SourceIndex, call: ast.Call, names: set[str], own: set[str], made: Site) -> bool:
    """Return whether `call` gives the scheduler made at `made` to a library, which may step it.

    :param names: the names that hold the scheduler; `own`: functions and classes of the user's.
    """
    callee = last_name(call.func)
    if callee in _HARMLESS or callee in own:
        return False
    given = [one for value in arguments_of(call) for one in index.walk(value)]
    if index.file == made.file and any(isinstance(one, ast.Call) and spans(one, made.line) for one in given):
        return _makes_scheduler(given, made)
    receiver = {last_name(one) for one in index.walk(call.func)}
    passed = {last_name(one) for one in given}
    return bool(names & passed) and not names & receiver


def _makes_scheduler(given: list[ast.AST], made: Site) -> bool:
    """Return whether an argument is the call that makes the scheduler."""
    calls = (one for one in given if isinstance(one, ast.Call) and spans(one, made.line))
    return any(last_name(one.func).endswith(("LR", "Plateau", "Restarts", "schedule")) for one in calls)


def loop_of_period(files: Collection[str], made: Site, stepped: Site) -> Site | None:
    """Return the loop that counts to the ``T_max`` given at `made`, unless it is the innermost one around `stepped`."""
    period = _period(made)
    if period is None:
        return None
    index = index_of(stepped.file)
    call = next(_step_calls(index, stepped.line), None)
    around = [one for one in index.around(call) if isinstance(one, LOOPS)] if call is not None else []
    for at in indexes(files):
        for loop in at.of(ast.For):
            if loop in around[:1] or not _counts_to(at, loop, period):
                continue
            if isinstance(period, str) or loop in around:
                return at.site(loop)
    return None


def _period(made: Site) -> str | int | None:
    """Return the number, or the name of the variable, that is given as ``T_max`` at `made`; ``None`` if unknown."""
    for call in index_of(made.file).of(ast.Call):
        if spans(call, made.line) and last_name(call.func) == "CosineAnnealingLR":
            words = [word.value for word in call.keywords if word.arg == "T_max"]
            given = next(iter((*words, *call.args[1:2])), None)
            if isinstance(given, ast.Constant) and isinstance(given.value, int):
                return given.value
            return last_name(given) or None
    return None


def _counts_to(index: SourceIndex, loop: ast.For, period: str | int) -> bool:
    """Return whether a loop is over a range that ends at a number or variable."""
    for call in index.walk(loop.iter):
        if isinstance(call, ast.Call) and last_name(call.func) in ("range", "trange"):
            for one in call.args:
                named = {last_name(part) for part in index.walk(one)}
                if isinstance(one, ast.Constant) and one.value == period:
                    return True
                if isinstance(period, str) and period in named:
                    return True
    return False


def metric_direction(stepped: Site) -> str:
    """Return what the names of the metric given to a plateau scheduler suggest: ``max``, ``min``, or empty if nothing.

    ``?`` if the metric is computed by a subtraction, which may turn it round.
    """
    index = index_of(stepped.file)
    calls = [one for one in _step_calls(index, stepped.line) if one.args or one.keywords]
    if not calls:
        return ""
    call = calls[-1]  # the others may be around it
    given: ast.AST = call.args[0] if call.args else call.keywords[0].value
    if any(isinstance(one, (ast.USub, ast.Sub)) for one in ast.walk(given)):
        return "?"
    found = _direction([given])
    if found:
        return found
    reference = index.reference(given)
    writes = index.writes_by_reference.get(reference, ()) if reference is not None else ()
    values: list[ast.AST] = [write.value for write in writes if write.how == "assign" and write.value is not None]
    values = values or _values_of_parameter(index, given)
    if any(isinstance(one, (ast.USub, ast.Sub)) for value in values for one in ast.walk(value)):
        return "?"
    return _direction(values)


def _values_of_parameter(index: SourceIndex, given: ast.AST) -> list[ast.AST]:
    """Return what calls in the file give to a parameter of the function around it; nothing for another expression."""
    if not isinstance(given, ast.Name):
        return []
    bound = index.holder(given).bound.get(given.id, ())
    return [value for one in bound if isinstance(one, ast.arg) for value in values_given_to(index, one)]


def _direction(nodes: list[ast.AST]) -> str:
    """Return ``max`` or ``min`` if the words in expressions name a metric that is good if it is high, or low; else
    empty.
    """
    names = (last_name(one) for node in nodes for one in ast.walk(node))
    keys = (one.value for node in nodes for one in ast.walk(node) if isinstance(one, ast.Constant))
    return direction_of_names([*names, *(key for key in keys if isinstance(key, str))])


def direction_of_names(texts: Collection[str]) -> str:
    """Return ``max`` or ``min`` if names such as ``val_acc`` are of a metric that is good if it is high, or low.

    Empty if they say nothing, and ``?`` if they say that its sign was turned round.
    """
    words = {word.lower() for text in texts for word in re.findall(r"[A-Z]?[a-z]+\d?|[A-Z]+\d?", text)}
    high, low = bool(words & _HIGH_IS_GOOD), bool(words & _LOW_IS_GOOD)
    if high is low:
        return ""
    return "?" if words & _TURNED_ROUND else "max" if high else "min"


def mode_given_at(made: Site) -> Site | None:
    """Return the line of the argument ``mode`` in the call at `made` that makes a plateau scheduler, if it has one."""
    index = index_of(made.file)
    for call in index.of(ast.Call):
        if spans(call, made.line) and last_name(call.func).endswith("Plateau"):
            return next((index.site(word.value) for word in call.keywords if word.arg == "mode"), None)
    return None


def names_scheduler(made: Site) -> bool:
    """Return whether a call at `made` makes a scheduler, judged by its name; otherwise a library makes it."""
    calls = (one for one in index_of(made.file).of(ast.Call) if spans(one, made.line))
    names = [last_name(one.func) for one in calls]
    return any(name.endswith(("LR", "Restarts")) or any(part in name.lower() for part in _SCHEDULERS) for name in names)
