"""The schemas of JSON follow from types, and say no less than a type does."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

import jsonschema
import pandas as pd
import pytest

import json_schema
import schemas
from json_schema import Schema
from unruly.base.plain import plain
from unruly.contract import LEFT_OUT, Absent, Count, OrNull
from unruly.topics.registry import TOPICS

Row = TypeVar("Row")


@dataclass(frozen=True)
class Wheel:
    """A wheel."""

    spokes: Count


@dataclass(frozen=True)
class Shelf(Generic[Row]):
    """A shelf, with ``rows``; None where there is no wall.

    Attributes
    ----------
    width, height : float
        In m.
    """

    width: float
    height: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Toy:
    """A toy. It may be broken, which is True or False.

    The second paragraph.
    """

    name: str
    kind: Literal["car", "train"] | None
    wheels: Annotated[pd.DataFrame, Wheel]
    spare: Wheel | None
    speed: OrNull
    """In m/s; NaN while it stands."""
    size: tuple[float, float]
    shelf: Shelf[Wheel]
    evidence: dict[str, Any]
    scratches: dict[str, Count] = field(default_factory=dict, metadata=LEFT_OUT)
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """What the shop prints. And no more."""

    schema: Literal[1]
    name: Literal["toy"]


@dataclass(frozen=True)
class Silent:
    name: str


@dataclass(frozen=True)
class Odd:
    """No JSON has it."""

    value: int | str


@dataclass(frozen=True)
class Complex:
    """No JSON has it."""

    value: complex


@dataclass(frozen=True)
class Mixed:
    """No JSON has it."""

    value: tuple[int, str]


TOY = Toy(
    name="bus",
    kind=None,
    wheels=pd.DataFrame({"spokes": [3, 4]}),
    spare=Wheel(5),
    speed=math.nan,
    size=(1.0, 2.0),
    shelf=Shelf(1.0, 2.0, (Wheel(0),)),
    evidence={"n": 1},
)
SCHEMA = Schema(closed=True).document(Toy, parts={"extra": Wheel | None})
CHECK = jsonschema.Draft202012Validator(SCHEMA)
VALUE = {**plain(TOY), "extra": None}


def test_each_type_has_its_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"] == {
        "name": {"type": "string"},
        "kind": {"enum": ["car", "train", None]},
        "wheels": {"type": "array", "items": {"$ref": "#/$defs/wheel"}},
        "spare": {"anyOf": [{"$ref": "#/$defs/wheel"}, {"type": "null"}]},
        "speed": {"type": ["number", "null"], "description": "In m/s; NaN while it stands."},
        "size": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        "shelf": {"$ref": "#/$defs/shelf_of_wheel"},
        "evidence": {"type": "object"},
        "scratches": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "absent": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Name of a null field (or field.high) to the reason.",
        },
        "extra": {"anyOf": [{"$ref": "#/$defs/wheel"}, {"type": "null"}]},
    }
    assert set(SCHEMA["properties"]) - set(SCHEMA["required"]) == {"scratches"}


def test_descriptions_are_the_docstrings_in_the_words_of_json() -> None:
    assert SCHEMA["title"] == "A toy"
    assert (
        SCHEMA["description"] == "It may be broken, which is true or false. The second paragraph."
    )
    shelf = SCHEMA["$defs"]["shelf_of_wheel"]
    assert shelf["description"] == "A shelf, with `rows`; null where there is no wall."
    assert [it.get("description") for it in shelf["properties"].values()] == [
        "In m.",
        "In m.",
        None,
    ]


def test_a_value_of_a_type_is_valid_against_its_schema() -> None:
    CHECK.validate(VALUE)
    assert "scratches" not in VALUE
    assert VALUE["speed"] is None
    assert plain(Toy(**{**vars(TOY), "scratches": {"door": 2}}))["scratches"] == {"door": 2}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"kind": "boat"}, "'boat' is not one of"),
        ({"name": None}, "None is not of type 'string'"),
        ({"size": [1.0]}, "too short"),
        ({"wheels": [{"spokes": -1}]}, "less than the minimum"),
        ({"wheels": [{}]}, "'spokes' is a required property"),
        ({"spare": {"spokes": 1, "colour": "red"}}, "not valid under any of the given schemas"),
        ({"shelf": {**VALUE["shelf"], "depth": 1}}, "'depth' was unexpected"),
        ({"scratches": {"door": "many"}}, "'many' is not of type 'integer'"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=wrong):
        CHECK.validate({**VALUE, **change})


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Silent, "no docstring"),
        (Odd, "a value of several types"),
        (Complex, "JSON has no such type"),
        (Mixed, "a tuple of several types"),
    ],
)
def test_a_type_that_json_cannot_say_is_refused(kind: type, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Schema(closed=True).of(kind)


def test_two_classes_of_one_name_are_refused() -> None:
    schema = Schema(closed=True)
    schema.of(Wheel)
    with pytest.raises(TypeError, match="rename one of them"):
        schema.of(dataclass(frozen=True)(type("Wheel", (), {"__doc__": "Another."})))


def test_the_first_class_of_a_document_overrides_the_fields_of_the_others() -> None:
    found = Schema(closed=False).document(Head, Toy, parts={})
    assert found["title"] == "What the shop prints"
    assert found["properties"]["schema"] == {"const": 1}
    assert found["properties"]["name"] == {"const": "toy"}
    assert set(found["required"]) == {"schema", *SCHEMA["required"]} - {"extra"}
    assert len(found["required"]) == len(set(found["required"]))
    assert "additionalProperties" not in found["$defs"]["wheel"]


def test_a_function_that_says_no_type_is_refused() -> None:
    with pytest.raises(TypeError, match="no return type"):
        json_schema.returned(lambda model: model)


def test_each_topic_has_its_part_of_the_summary() -> None:
    found = schemas.summary()
    names = [topic.name for topic in TOPICS]
    assert [it for it in found["properties"] if it in names] == names
    assert set(names) <= set(found["required"])


def test_every_part_of_a_schema_is_used_and_described() -> None:
    for text in schemas.texts().values():
        defs = json.loads(text)["$defs"]
        assert set(re.findall(r'"#/\$defs/(\w+)"', text)) == set(defs)
        assert all(it["description"] for it in defs.values())
