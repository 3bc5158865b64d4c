"""Kill processes, damage files, lock databases, and report what was lost.

    .venv/bin/python -m benchmarks.faults --kills 20 --seed 0

Needs no network. Prints one JSON document. The exit code is 1 if anything was lost or half written, or if a command
ended without a clear error message. ``scripts/kill_and_resume.py`` kills training.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.faults import kills, spoiled
from benchmarks.faults.world import make_place


def main() -> int:
    """Run the selected faults, each in its own data folder."""
    every = (*kills.KINDS, *spoiled.KINDS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"all by default: {', '.join(every)}")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if unknown := set(chosen.kinds) - set(every):
        parser.error(f"there are no kinds {', '.join(sorted(unknown))}; choose from {', '.join(every)}")
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    found = {}
    for kind in chosen.kinds or every:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            place = make_place(Path(folder))
            chance = random.Random(chosen.seed)
            if kind in kills.KINDS:
                wrong = partial(kills.KINDS[kind], place, chosen.kills, chance)()
            else:
                wrong = spoiled.KINDS[kind](place, chance)
        found[kind] = {"wrong": wrong, "seconds": round(time.monotonic() - began, 1)}
        print(f"{kind}: {len(wrong)} findings, {found[kind]['seconds']} s", file=sys.stderr, flush=True)
    print(json.dumps({"kills": chosen.kills, "found": found}, indent=1, ensure_ascii=False))
    return int(any(it["wrong"] for it in found.values()))


if __name__ == "__main__":
    sys.exit(main())
