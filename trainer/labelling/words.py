"""A rule in words, as a person would have written the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainer.labelling.features import Words
from trainer.labelling.rules import Rule

_BREAKS = str.maketrans({"\n": "↵", "\t": "⇥", "\r": ""})


def in_words(rule: Rule, words: Mapping[str, Words]) -> str:
    """The label that says what a rule says."""
    told = {condition.name: [words[condition.name].texts[value] for value in condition.values] for condition in rule}
    language = told.pop("language", [])
    said = " ".join(part for part in (_subject(told), _where(told)) if part)
    if not said:
        return _either(language) if language else ""
    said = said if said[0] in "“‘" else said[0].upper() + said[1:]
    return f"{_either(language)}: {said}" if language else said


def _subject(told: Mapping[str, Sequence[str]]) -> str:
    tokens, whole = told.get("token"), told.get("word")
    kind, ending = told.get("kind"), told.get("ending")
    if tokens and whole:
        same = {token.strip().lower() for token in tokens} == set(whole)
        return _quoted(tokens) if same else f"the {_quoted(tokens)} of {_quoted(whole)}"
    if tokens:
        inside = kind is not None and all("word" in one and one != "words" for one in kind)
        return f"{_quoted(tokens)}, {_either(kind)}" if inside and kind else _quoted(tokens)
    if whole:
        return f"{_either(kind)} of {_quoted(whole)}" if kind and kind != ["words"] else _quoted(whole)
    if ending:
        return f"{_either(kind) if kind else 'words'} in {_either([f'“-{one}”' for one in ending])}"
    return _either(kind) if kind else ""


def _where(told: Mapping[str, Sequence[str]]) -> str:
    says: dict[str, Callable[[Sequence[str]], str]] = {
        "before": lambda values: f"after {_quoted(values)}",
        "before_two": lambda values: f"after {_quoted(values)}",
        "kind_before": lambda values: f"after {_either(values)}",
        "start": lambda values: f"at {_either(values)}",
        "inside": lambda values: f"inside {_either(values)}",
    }
    parts = [phrase(told[name]) for name, phrase in says.items() if name in told]
    # Two statements on what stands before: the longer one says it all.
    if "before" in told and "before_two" in told:
        parts.pop(0)
    return " ".join(parts)


def _quoted(texts: Sequence[str]) -> str:
    drawn = [text.strip(" ").translate(_BREAKS) or "␣" * min(len(text), 4) for text in texts]
    return _either([f"“{text}”" for text in dict.fromkeys(drawn)])


def _either(texts: Sequence[str] | None) -> str:
    texts = texts or []
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
