"""Private names of torch that may be used outside this package, each with the reason why no function wraps it.

``tests/test_torch_internals.py`` finds every other use. Nevertheless, a fact in ``facts/`` covers each of them.
"""

from __future__ import annotations

_HOT = "read for every node, tensor or module call: a function in between costs some 50 ns each"
_PLAIN = "says what it is, and is read where nothing else would: a function would only give it a second name"

DIRECT = {
    # Hot paths: graph walks, node hooks, the torch call recorder, module hooks.
    "_sequence_nr": _HOT,
    "_input_metadata": _HOT,
    "_version": _HOT,
    "_buffers": _HOT,
    "_backward_hooks": _HOT,
    "_backward_pre_hooks": _HOT,
    "_post_accumulate_grad_hooks": _HOT,
    "_set_grad_enabled": "turned off and on around every gradient that is measured: half the time of torch.no_grad()",
    # Names that are clearest as they are.
    "_base": _PLAIN,
    "_is_view": _PLAIN,
    "_parameters": _PLAIN,
    "_forward_hooks": _PLAIN,
    "_forward_pre_hooks": _PLAIN,
    "_modules": _PLAIN,
    "_forward_cls": "asked of nodes that may have none, with three different defaults",
    "_is_full_backward_hook": "has three values, and one reader",
    "_schema": "one of a public class (OpOverload); there is no other way to learn what an op writes",
    "_foreach_norm": "a public kernel under a private name, with one caller",
    "_foreach_sub_": "the same",
    "_foreach_div_": "the same",
    # Modules with private names, whose classes or functions are derived from or called.
    "_python_dispatch": "TorchDispatchMode has no public place to be imported from",
    "_pytree": "torch has no public place for these functions",
}
