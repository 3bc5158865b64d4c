"""What a stretch of text is written in, by the words that only that language uses often.

Function words give away a natural language, keywords and telltale strings a programming language. Nothing is
downloaded and nothing is learned: the lists below are all there is, and where they say nothing, nothing is said.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WINDOW = 24
"""Tokens on either side that are looked at."""
ENOUGH = 2
"""Telltale words that must be there."""
LEAD = 1.5
"""How many times as many as for the next best."""

TELLTALES: dict[str, str] = {
    "English": "the and of to was that with his her he she they were have had for this which from you not but is are",
    "French": "le la les des une est et que qui dans pour pas elle il du au sur avec ne plus ce cette nous vous je",
    "German": "der die das und ist nicht ein eine den dem mit sich auf für von zu im werden oder auch als wenn ich",
    "Spanish": "el los las una que en y es por con para del se no lo su como más pero al ella él yo",
    "Italian": "il che di è per una sono con non della gli nel più anche ma dei alla",
    "Portuguese": "o os uma não em um é com do da para mais ao seu sua pelo você",
    "Dutch": "het een van en niet zijn dat op te voor met aan ook maar wordt",
    "Python code": "def self elif None True False import __init__ isinstance lambda raise yield kwargs",
    "C code": "#include void char struct static sizeof NULL int unsigned const printf typedef",
    "JavaScript code": "function const let var typeof undefined => === null async await",
    "HTML": "div href span li ul class= </ <p> <a html head body",
    "CSS": "px margin padding border background color display font em rgba width height",
    "mathematics": "\\frac \\( $$ theorem lemma proof",
}
NAMES: tuple[str, ...] = ("", *TELLTALES)
"""Names by number; 0 is for text that says nothing."""


def telltale_lookup() -> dict[str, list[int]]:
    """From a word to the numbers of the languages that it speaks for."""
    lookup: dict[str, list[int]] = {}
    for number, words in enumerate(TELLTALES.values(), start=1):
        for word in words.split():
            lookup.setdefault(word, []).append(number)
    return lookup


def surroundings(hits_LS: NDArray[np.int32]) -> NDArray[np.int32]:
    """[L]: number of what the text around each token is written in.

    Args:
        hits_LS: for each token of one sequence and each name, how many telltale words begin there.
    """
    length = len(hits_LS)
    sums = np.concatenate([np.zeros((1, hits_LS.shape[1]), np.int64), hits_LS.cumsum(axis=0)])
    first = np.maximum(np.arange(length) - WINDOW, 0)
    last = np.minimum(np.arange(length) + WINDOW + 1, length)
    around = sums[last] - sums[first]
    best = around.argmax(axis=1)
    most = around[np.arange(length), best]
    around[np.arange(length), best] = 0
    clear = (most >= ENOUGH) & (most >= LEAD * around.max(axis=1))
    return np.where(clear, best, 0).astype(np.int32)
