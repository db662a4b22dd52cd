"""What the text of a finding must agree with: the finding itself, and the schema of the summary."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from unruly.topics.rules import RULES

SCHEMA = Path(__file__).resolve().parents[2] / "schema" / "summary.schema.json"
PATH = re.compile(r"`([\w.\[\]]+)`(?: \(((?:`\w+`(?:,\s)?)+)\))?")
"""A path into summary.json between backticks, and the keys below it in parentheses."""
BY_CODE = {rule.code: rule for rule in RULES}


def assert_like_its_example(finding):
    """The title reads as the example in the docstring of its rule, whatever the numbers are."""
    (example,) = BY_CODE[finding.code].explanation.parts["Example"]
    assert _without_numbers(finding.title) == _without_numbers(" ".join(example.split()))


def _without_numbers(title):
    numbers = re.sub(r"(?<![\w-])\d[\d,]*(?:\.\d+)?(?![\w-])", "#", title)
    return re.sub(r"# (?:ns|µs|ms|s|min)\b", "# s", numbers)


def paths(text):
    """Every path into summary.json that a text names."""
    for found in PATH.finditer(text):
        if not found[1].endswith(".json"):
            yield found[1]
            yield from (f"{found[1]}.{key}" for key in re.findall(r"\w+", found[2] or ""))


def is_in_summary(path):
    """Return whether the schema of summary.json has a path such as ``cells[].p50``."""
    nodes = [_schema()]
    for part in re.findall(r"\[\]|\w+", path):
        nodes = [child for node in nodes for own in _variants(node) for child in _below(own, part)]
    return bool(nodes)


def _below(node, part):
    if part == "[]":
        return [node["items"]] if "items" in node else []
    known = node.get("properties", {}).get(part) or node.get("additionalProperties")
    return [known] if known else []


def _variants(node):
    """A node, with its reference resolved, and each alternative of it."""
    if "$ref" in node:
        target = _schema()
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        yield from _variants(target)
        return
    yield node
    for key in ("anyOf", "oneOf", "allOf"):
        for alternative in node.get(key, []):
            yield from _variants(alternative)


@cache
def _schema():
    return json.loads(SCHEMA.read_text(encoding="utf-8"))
