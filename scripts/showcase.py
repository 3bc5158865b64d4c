"""Write the texts of the first page's slider: one saved session at several strengths.

    python scripts/showcase.py smollm2-l22 Childhood "brings childhood into a text" \\
        --prompt "The captain looked at the sea and" --data data/demo

Reads the session from ``sessions.json`` and writes ``showcase.json``, both in the data folder. At strength 0 the text
is the baseline's; elsewhere every edit of the session has that strength.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

STRENGTHS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)


def main() -> None:
    """Generate every text and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("session", help="name of the session")
    parser.add_argument("title", help="what its experts do")
    parser.add_argument("--prompt", help="in place of the session's")
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    session = json.loads((words.data / "sessions.json").read_text("utf-8"))[words.run][words.session]
    prompt = words.prompt or session["prompt"]
    experts = [edit["expert"] for edit in session["edits"]]
    sampling = session.get("sampling", {})
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in sampling.items() if name != "stop"]
    texts: list[dict[str, Any]] = []
    command: list[str] = []
    for strength in STRENGTHS[1:]:
        edits = [f"--edit={expert}:add:{strength:g}" for expert in experts]
        command = ["steer", words.run, prompt, *edits, *settings]
        run = [sys.executable, "-m", "mxd", *command, "--data", str(words.data), "--json"]
        answer = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        if not texts:
            texts.append(stored_text(0.0, answer["baseline"][0]))
        texts.append(stored_text(strength, answer["steered"][0]))
        print(f"{strength:g}: {answer['steered'][0]['text']!r}", file=sys.stderr)
    names = {"run": words.run, "session": words.session, "title": words.title, "prompt": prompt}
    content = {**names, "command": shlex.join(["mxd", *command]), "texts": texts}
    (words.data / "showcase.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")


def stored_text(strength: float, sample: dict[str, Any]) -> dict[str, Any]:
    """Keep the shown fields of a generated text, without special tokens at its end."""
    kept = [token for token in sample["tokens"] if token["text"] and not token["text"].startswith("<|")]
    tokens = [
        {
            "id": token["id"],
            "text": token["text"],
            "delta_log_probability": round(token["delta_log_probability"], 3) if strength else 0.0,
        }
        for token in kept
    ]
    return {"strength": strength, "tokens": tokens}


if __name__ == "__main__":
    main()
