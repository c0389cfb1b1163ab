"""Removes secrets and the path of the user's home folder from runs and pages.

Note [Secrets in a run]: people mail runs and pages. Values that look like secrets are masked before they are stored:
values of options, settings and variables by their names; passwords and tokens in addresses; tokens of well-known
services by their form. The script itself always gets the original values.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

#: Replaces a secret.
MASK = "***"
#: A name with one of the first words, or ending with one of the second, denotes a secret; unless it has one of the
#: third: a setting of tokenizers, of attention, of logs and sorting.
_WORDS = (
    "secret secrets password passwords passwd pwd passphrase credential credentials apikey bearer authorization",
    "token key auth pat cookie",
    "pad eos bos unk mask sep cls special image start end stop first last max min num new total per n of sort metric "
    "log group primary foreign dict state feature label target input output text data column batch kv q v prefix",
)
_WORDS_ANYWHERE, _LAST_WORDS, _PLAIN_WORDS = (frozenset(words.split()) for words in _WORDS)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: Values that are switches, not secrets.
_SWITCHES = frozenset({"", "true", "false", "none", "null", "yes", "no", "on", "off", "0", "1"})
_OPTION = re.compile(r"([+~-]*[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
_NAME_OF_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*")

#: Tokens of services, by their prefix.
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"(?:hf|api_org)_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|"
    r"glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|pypi-[\w-]{20,}|npm_[A-Za-z0-9]{30,}|"
    r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|local-[a-f0-9]{40}"
    r")(?![A-Za-z0-9_])"
)
_MARKS = (
    *("hf_", "api_org_", "sk-", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA"),
    *("AIza", "pypi-", "npm_", "eyJ", "local-"),
)
#: ``user:password@`` in an address, and a parameter of its query.
_LOGIN = re.compile(r"(://[^/\s:@\"'\\]*:)[^/\s@\"'\\]+(?=@)")
_QUERY = re.compile(r"([?&;]([A-Za-z][\w.-]*)=)[^&;\s\"'#\\]+")
_BEARER = re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/-]{8,}=*")
#: A name and a value in the text of an option, as headers and JSON have them.
_PAIR = re.compile(r"(([A-Za-z][\w.-]*)[\"']?\s*[:=]\s*[\"']?)([^\s\"',;&}]+)")
#: A string that a source line assigns to a name.
_LITERAL = re.compile(r"(\b([A-Za-z_]\w*)[\"']?\]?\s*[:=]\s*[\"'])([^\"'\n]{8,})(?=[\"'])")


def is_secret(name: str) -> bool:
    """Return whether a value of that name looks like a secret: ``--hf-token``, ``db.password``, ``API_KEY``."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if _WORDS_ANYWHERE.intersection(words) or "".join(words[-2:]) in ("apikey", "accesskey", "secretkey", "privatekey"):
        return True
    return words[-1] in _LAST_WORDS and not _PLAIN_WORDS.intersection(words[:-1])


def masked(text: str) -> str:
    """Mask secrets that are recognisable by their form: tokens of services, and those in addresses."""
    if any(mark in text for mark in _MARKS):
        text = _TOKENS.sub(MASK, text)
    if "://" in text:
        text = _LOGIN.sub(rf"\1{MASK}", text)
        text = _QUERY.sub(lambda found: found[1] + MASK if is_secret(found[2]) else found[0], text)
    if "earer " in text or "asic " in text:
        text = _BEARER.sub(rf"\1 {MASK}", text)
    return text


def masked_value(name: str, value: str) -> str:
    """Mask `value`, given its name: that of an option or an environment variable."""
    return MASK if is_secret(name) and value.lower() not in _SWITCHES else masked(value)


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with secrets masked, by their names and their forms."""
    return {name: masked_value(name, value) for name, value in variables.items()}


def masked_arguments(arguments: Iterable[str]) -> list[str]:
    """Return the arguments of a command with secrets masked: ``--token=x``, ``--token x``, ``api.key=x``, and in any
    text.
    """
    found: list[str] = []
    name = ""
    for one in map(str, arguments):
        option = _OPTION.fullmatch(one)
        if name and not one.startswith("--"):
            found.append(masked_value(name, one))
        elif option is not None:
            found.append(f"{option[1]}={masked_value(option[1], _pairs(option[2]))}")
        else:
            found.append(_pairs(masked(one)))
        name = one if not option and _NAME_OF_OPTION.fullmatch(one) and is_secret(one) else ""
    return found


def _pairs(text: str) -> str:
    """Mask values of names that look like secrets in a text such as a header or JSON."""

    def mask(found: re.Match[str]) -> str:
        """Return the text for a pair of name and value: masked if the name looks like a secret."""
        return found[1] + MASK if is_secret(found[2]) and found[3].lower() not in _SWITCHES else found[0]

    return text if "://" in text else _PAIR.sub(mask, text)


def masked_source(text: str) -> str:
    """Mask strings that source lines assign to names of secrets."""

    def mask(found: re.Match[str]) -> str:
        """Return the text for an assigned string: masked if the name looks like a secret, and the string
        has no spaces.
        """
        return found[1] + MASK if is_secret(found[2]) and not set(" \t") & set(found[3]) else found[0]

    return masked(_LITERAL.sub(mask, text))


@lru_cache(8)
def _home(home: str) -> re.Pattern[str] | None:
    """Return a pattern that finds the path `home` in a text; ``None`` if the path is too short to replace."""
    if len(home.strip("/\\")) < 2:
        return None
    return re.compile(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])")


def without_home(text: str) -> str:
    """Replace the current user's home folder by ``~`` in `text`, which may be JSON."""
    home = os.path.expanduser("~").rstrip("/\\")
    for form in dict.fromkeys((home, json.dumps(home)[1:-1])):
        pattern = _home(form)
        if pattern is not None and form in text:
            text = pattern.sub("~", text)
    return text


def at_home(path: str) -> str:
    """Replace a leading ``~`` by the current user's home folder, so that a line has the same path, stored or not."""
    return os.path.expanduser("~") + path[1:] if path == "~" or path.startswith(("~/", "~\\")) else path


def private(text: str) -> str:
    """Return `text`, JSON or any other, without secrets and the home folder, so that it may be stored and mailed."""
    return masked(without_home(text))


def private_values(value: object, left: type = bytes) -> object:
    """Apply ``private`` to each text in `value`, made of lists and dicts; values of the type `left` stay."""
    if isinstance(value, str):
        return private(value)
    if isinstance(value, left):
        return value
    if isinstance(value, Mapping):
        return {key: private_values(one, left) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [private_values(one, left) for one in value]
    return value
