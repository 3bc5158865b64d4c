"""Check the prose of documents, docstrings, comments and screen texts: no banned phrase, no overlong sentence.

Spelling is codespell's. Run: python scripts/check_prose.py [FILE …]; exit code 1 if anything is found.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MAX_WORDS = 40
"""Longest sentence. 25 words is the aim; lists, formulas and examples may exceed it."""
EXCLUDED = (
    "docs/reference/licences.md",
    "data/",
    "docs/results/archive/",
    "frontend/src/api/schema.d.ts",
    "frontend/openapi.json",
)
SUFFIXES = {".py", ".ts", ".tsx", ".md"}

BANNED = {
    r"go(es|ing)? on with|gone on with|went on with": "continue, resume",
    r"what (comes|came) of": "the result of",
    r"\b(whoever|nobody)\b": "name the actor",
    r"\btold of\b|\bis told\b|\bare told\b": "receives, is passed",
    r"\blets? go of\b": "releases",
    r"\bput in place\b|\bputs in place\b": "installs, replaces",
    r"\bha(s|ve) no room to\b|\bgives? back the room\b": "does not fit; reclaims disk space",
    r"\bseldom\b": "rarely",
    r"\bthereby\b": "so",
    r"\banew\b": "again",
    r"\b(said|answers?|told|seen|begins?|refused) at once\b": "immediately",
    r"\bso manieth\b": "n-th",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bto the bit\b": "bit-identical",
    r"\bfit(s|ted|ting)? (a|the|one) layers?\b": "train",
    r"\bdoubt\b": "uncertainty, baselines",
    r"\bturned? round\b": "reversed",
    r"\bwants? to be\b|\bwant more\b": "needs",
    r"\bin words\b": "as text",
    r"\bis not to be had\b|\bto be had\b": "is not available",
    r"\b(tokens|steps|requests) a (second|step|token)\b|\bnats a token\b": "per",
    r"\bputs? out of reach\b": "disables",
    r"\bthe other way round\b": "vice versa",
    r"\b(stands|stood) (beside|in|there)\b": "is next to; represents; is in",
    r"\b(are|is) taken away\b": "is removed; comes from",
}
BANNED_STARTS = {
    r"^Of\b": "begin with the noun",
    r"^The same(?= for|,|;|\.| as)": "say what it is",
    r"^(What|Whether|Those|Where|Who|Which) (?!.*\?)": "begin with a noun or a verb",
}
"""For docstrings and comments of Python."""
ANYWHERE = [(re.compile(pattern, re.IGNORECASE), hint) for pattern, hint in BANNED.items()]
STARTS = [(re.compile(pattern, re.DOTALL), hint) for pattern, hint in BANNED_STARTS.items()]
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`\"'(\[]|$)|\n\s*\n|\n\s*(?:[-*|#]|\d+\.|>>>|\w+:\s)")
TABLE_LINE = re.compile(r"^.*\S {2,}\S.*$", re.MULTILINE)
"""Formulas and file lists in docstrings."""
STYLE_SHEET = re.compile(r"\{[^}]*:[^}]*;")
CODE = re.compile(r"``[^`]*``|`[^`]*`|\[([^\]]*)\]\([^)]*\)|https?://\S+|<[^>]+>")
STRING = re.compile(r"(?<![\w=])\"((?:[^\"\\\n]|\\.)*\s(?:[^\"\\\n]|\\.)*)\"|>([^<>{}\n]*\w\s[^<>{}\n]*)<")


class Passage(NamedTuple):
    """A piece of prose."""

    line: int
    text: str


class Finding(NamedTuple):
    """A place to reword."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def python_passages(source: str) -> Iterator[Passage]:
    """Docstrings, attribute docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Passage(node.lineno, node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("#!", "# type:", "# noqa")):
            yield Passage(token.start[0], token.string.lstrip("# "))


def message_passages(source: str) -> Iterator[Passage]:
    """String constants of at least three words, also inside f-strings: errors, help, labels. No style sheets."""
    tree = ast.parse(source)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documented)
    for node in constants:
        if isinstance(node.value, str) and node.value.count(" ") >= 2 and not STYLE_SHEET.search(node.value):
            yield Passage(node.lineno, node.value)


def markdown_passages(source: str) -> Iterator[Passage]:
    """Paragraphs, list items and table cells, without code blocks."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            for cell in line.strip().strip("|").split(" | "):
                yield Passage(number, cell.strip("# *-"))


def typescript_passages(source: str) -> Iterator[Passage]:
    """Comments, and strings and element texts of at least two words."""
    for match in re.finditer(r"/\*\*?(.*?)\*/|(?<![:\w])//([^\n]*)", source, flags=re.DOTALL):
        text = re.sub(r"\n\s*\*", "\n", match[1] if match[1] is not None else match[2]).strip()
        yield Passage(source.count("\n", 0, match.start()) + 1, text)
    for number, line in enumerate(source.splitlines(), 1):
        if "className" not in line and "import " not in line:
            for match in STRING.finditer(line):
                yield Passage(number, match[1] or match[2])


READERS = {".py": python_passages, ".md": markdown_passages, ".ts": typescript_passages, ".tsx": typescript_passages}


def findings(path: Path) -> Iterator[Finding]:
    """Problems in one file."""
    source = (ROOT / path).read_text("utf-8")
    # Strings of tests are data as often as messages, and those of the checks are the banned phrases themselves.
    has_messages = path.suffix == ".py" and path.parts[0] != "tests" and not path.name.startswith("check_")
    for passage in chain(READERS[path.suffix](source), message_passages(source) if has_messages else ()):
        prose = TABLE_LINE.sub("", passage.text)
        text = CODE.sub(lambda match: match[1] or "x", prose)
        for pattern, hint in [*ANYWHERE, *(STARTS if path.suffix == ".py" else ())]:
            match = pattern.search(text)
            if match:
                yield Finding(path, passage.line, f"“{match[0]}”: use {hint}")
        for sentence in SENTENCE_END.split(text):
            words = len(re.findall(r"\b[a-zA-Z][\w'’-]*", sentence))
            if words > MAX_WORDS and not sentence.replace(" ", "").isalpha():  # not a list of words
                yield Finding(path, passage.line, f"sentence of {words} words: {' '.join(sentence.split()[:6])} …")


def prose_files() -> list[Path]:
    """Tracked files that contain prose."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    paths = [Path(name) for name in listed if name and not name.startswith(EXCLUDED)]
    return [path for path in paths if path.suffix in SUFFIXES and (ROOT / path).is_file()]


def main(names: Iterable[str]) -> int:
    """Print what is found. Returns the exit code."""
    paths = [Path(name) for name in names] or prose_files()
    problems = [finding for path in paths for finding in findings(path)]
    print("\n".join(map(str, problems)) if problems else f"{len(paths)} files checked")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
