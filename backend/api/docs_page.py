"""The API documentation as one HTML page, generated from OpenAPI, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

JsonObject = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, h3 { font-family: ui-monospace, monospace; font-size: 13px; }
h3 { margin: 1.6rem 0 .2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td { padding: .1rem .8rem .1rem 0; vertical-align: top; }
p { margin: .3rem 0; }
"""


def docs_page(openapi: JsonObject) -> str:
    """Return HTML with every endpoint and every type."""
    info = openapi["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}: API</title>",
        "<meta name='viewport' content='width=device-width'>",
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><p>{escape(info['description'])}</p>",
        "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a></p><h2>Endpoints</h2>",
        *_endpoints(openapi["paths"]),
        "<h2>Types</h2>",
    ]
    for name, schema in sorted(openapi["components"]["schemas"].items()):
        parts.append(f"<h3 id='{escape(name)}'>{escape(name)}</h3><p>{escape(schema.get('description', ''))}</p>")
        parts.append("<table>")
        for field, its in schema.get("properties", {}).items():
            parts.append(_line(field, its, its.get("description", "")))
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>"])


def _endpoints(paths: JsonObject) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h3>{method.upper()} {escape(path)}</h3><p>{escape(operation.get('description', ''))}</p><table>"
            for parameter in operation.get("parameters", []):
                note = parameter.get("description") or parameter["schema"].get("description", "")
                yield _line(f"{parameter['name']} ({parameter['in']})", parameter["schema"], note)
            if "requestBody" in operation:
                yield _line("body", _schema_of(operation["requestBody"]), "")
            for status, response in operation["responses"].items():
                yield _line(status, _schema_of(response), response["description"])
            yield "</table>"


def _line(name: str, schema: JsonObject, note: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td><code>{_kind(schema)}</code></td><td>{escape(note)}</td></tr>"


def _schema_of(holder: JsonObject) -> JsonObject:
    content: JsonObject = next(iter(holder.get("content", {}).values()), {})
    schema: JsonObject = content.get("schema", {})
    return schema


def _kind(schema: JsonObject) -> str:
    """Short description of a type, with links to named types."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_kind(option) for option in schema[union])
    if "enum" in schema:
        return " | ".join(escape(str(value)) for value in schema["enum"])
    if "const" in schema:
        return escape(str(schema["const"]))
    if schema.get("type") == "array":
        items = schema.get("items") or {}
        return f"list of ({_kind(items)})" if items else "list"
    return escape(str(schema.get("type", "")))
