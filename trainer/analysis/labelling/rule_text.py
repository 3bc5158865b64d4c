"""Rules in English, as labels of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mxd.trainer.analysis.labelling.rule_search import Rule
from mxd.trainer.analysis.labelling.token_features import Vocabulary
from mxd.trainer.language_model.tokenizer import DOCUMENT_SEPARATOR

_BREAKS = str.maketrans({"\n": "↵", "\t": "⇥", "\r": ""})


def describe_rule(rule: Rule, vocabularies: Mapping[str, Vocabulary]) -> str:
    """Describe a rule in English."""
    texts = {one.name: [vocabularies[one.name].texts[value] for value in one.values] for one in rule}
    language = texts.pop("language", [])
    text = " ".join(part for part in (_subject(texts), _surroundings(texts)) if part)
    if not text:
        return _either(language) if language else ""
    text = text if text[0] in "“‘" else text[0].upper() + text[1:]
    return f"{_either(language)}: {text}" if language else text


def _subject(texts: Mapping[str, Sequence[str]]) -> str:
    tokens, words = texts.get("token"), texts.get("word")
    kind, ending = texts.get("kind"), texts.get("ending")
    if tokens and words:
        same = {token.strip().lower() for token in tokens} == set(words)
        return quoted(tokens) if same else f"the {quoted(tokens)} of {quoted(words)}"
    if tokens:
        is_part = kind is not None and all("word" in value and value != "words" for value in kind)
        return f"{quoted(tokens)}, {_either(kind)}" if is_part and kind else quoted(tokens)
    if words:
        return f"{_either(kind)} of {quoted(words)}" if kind and kind != ["words"] else quoted(words)
    if ending:
        return f"{_either(kind) if kind else 'words'} in {_either([f'“-{value}”' for value in ending])}"
    return _either(kind) if kind else ""


def _surroundings(texts: Mapping[str, Sequence[str]]) -> str:
    phrases: dict[str, Callable[[Sequence[str]], str]] = {
        "before": _after,
        "before_two": _after,
        "kind_before": lambda values: f"after {_either(values)}",
        "start": lambda values: f"at {_either(values)}",
        "inside": lambda values: f"inside {_either(values)}",
    }
    parts = [phrase(texts[name]) for name, phrase in phrases.items() if name in texts]
    # The longer of two statements about the preceding tokens implies the shorter one.
    if "before" in texts and "before_two" in texts:
        parts.pop(0)
    return " ".join(dict.fromkeys(parts))


def _after(texts: Sequence[str]) -> str:
    """Describe preceding tokens. A document separator is named, not quoted."""
    start = "at the start of a document"
    inside = [text for text in texts if DOCUMENT_SEPARATOR not in text]
    first = [text.split(DOCUMENT_SEPARATOR)[-1] for text in texts if DOCUMENT_SEPARATOR in text]
    words = [text for text in first if text]
    phrases = [f"after {quoted(inside)}"] if inside else []
    phrases += [f"after {quoted(words)} {start}"] if words else []
    return _either([*phrases, start] if "" in first else phrases)


def quoted(texts: Sequence[str]) -> str:
    """Quote tokens, with visible white space."""
    printable = [text.strip(" ").translate(_BREAKS) or "␣" * min(len(text), 4) for text in texts]
    quoted = [f"“{text}”".replace(f"“{DOCUMENT_SEPARATOR}”", "the end of a document") for text in printable]
    return _either(list(dict.fromkeys(quoted)))


def _either(texts: Sequence[str] | None) -> str:
    texts = texts or []
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
