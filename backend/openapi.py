"""``python -m backend.openapi`` prints the API as OpenAPI JSON; the front end's types are generated from it."""

from __future__ import annotations

import json

from backend.app import build_api


def main() -> None:
    """Print it, the same on every machine."""
    print(json.dumps(build_api().openapi(), indent=2))


if __name__ == "__main__":
    main()
