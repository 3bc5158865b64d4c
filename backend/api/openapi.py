"""``python -m mxd.backend.api.openapi`` prints the OpenAPI schema, from which the frontend's types are generated."""

import json

from mxd.backend.api.app import build_api


def main() -> None:
    """Print the schema, identical on every machine."""
    print(json.dumps(build_api().openapi(), indent=2))


if __name__ == "__main__":
    main()
