"""As much of JSON Schema as our schemas use."""

import re
from typing import Any

TYPES = {
    "object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool,
    "null": type(None),
}  # fmt: skip
KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "type", "properties", "required", "additionalProperties",
    "items", "enum", "const", "minimum", "maximum", "pattern",
}  # fmt: skip


def problems(value: Any, whole: dict[str, Any], part: dict[str, Any] | None = None, where: str = "$") -> list[str]:
    """What a schema's words say about a value; a word that is not known here is a problem itself."""
    schema = whole if part is None else part
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    found = [f"{where}: unknown word {word}" for word in schema.keys() - KNOWN]
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        right = [
            isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
        ]
        if not any(right):
            return [*found, f"{where}: not {names}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: not {schema['const']}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: not in {schema['enum']}")
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where}: out of range")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{where}: not {schema['pattern']}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            found += problems(item, whole, schema["items"], f"{where}[{i}]")
    if isinstance(value, dict):
        found += [f"{where}: {name} is missing" for name in schema["required"] if name not in value]
        for name, item in value.items():
            if name in schema["properties"]:
                found += problems(item, whole, schema["properties"][name], f"{where}.{name}")
            else:
                found.append(f"{where}: {name} is unknown")
    return found
