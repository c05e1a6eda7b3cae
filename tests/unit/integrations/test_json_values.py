"""PydanticSerializer, MsgspecSerializer and OrjsonSerializer: bytes, types, and errors without payload."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import json
import typing
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer.errors import SchemaValidationError
from aioproducer.integrations.json_values import JsonSerializer
from aioproducer.integrations.msgspec import MsgspecSerializer
from aioproducer.integrations.orjson import OrjsonSerializer
from aioproducer.integrations.pydantic import PydanticSerializer
from aioproducer.testing import FakeCluster


class Line(pydantic.BaseModel):
    item: str
    count: int = 1

    @pydantic.field_validator("item")
    @classmethod
    def known(cls, item: str) -> str:
        if item == "secret tea":
            raise ValueError(f"{item} is out of stock")
        return item


class Priced(Line):
    cents: int


class Order(pydantic.BaseModel):
    id: int
    lines: list[Line] = []


class Point(msgspec.Struct):
    x: int
    kind: typing.Literal["a", "b"] = "a"


class Needy(msgspec.Struct, rename="kebab"):
    its_name: str


class Picky(msgspec.Struct):
    item: str

    def __post_init__(self) -> None:
        raise ValueError(self.item)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(alias="itsName")


class Shy(pydantic.BaseModel):
    item: str

    @pydantic.field_serializer("item")
    def refuse(self, item: str) -> str:
        raise KeyError(item)


class Computed(pydantic.BaseModel):
    item: str

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def net(self) -> float:
        raise ValueError(f"ZeroDivisionError: {self.item}")


@pydantic.dataclasses.dataclass
class Pair:
    left: int


class Row(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(from_attributes=True)

    x: int
    lines: list[int] = []
    more: dict[str, int] = {}


class Tree(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    over: Tree | list[int] | None = None


class Disc(pydantic.BaseModel):
    kind: typing.Literal["disc"]
    radius: int


class Square(pydantic.BaseModel):
    kind: typing.Literal["square"]


Shape = typing.Annotated[Disc | Square, pydantic.Field(discriminator="kind")]


class Lazy:
    @property
    def x(self) -> int:
        raise ValueError("secret")


class Hostile(collections.abc.Mapping[str, int]):
    """Its own errors quote its content."""

    def items(self) -> typing.NoReturn:
        raise ValueError("secret")

    def __getitem__(self, key: str) -> int:
        raise ValueError("secret")

    def __iter__(self) -> Iterator[str]:
        raise ValueError("secret")

    def __len__(self) -> int:
        raise ValueError("secret")


def failing() -> Iterator[int]:
    yield 1
    raise ValueError("secret")


def deep(levels: int) -> Any:
    value: Any = "secret"
    for _ in range(levels):
        value = [value]
    return value


@dataclasses.dataclass
class Plain:
    x: int


def written(serializer: JsonSerializer, value: Any) -> Any:
    return json.loads(serializer.serialize("orders", None, value))


ORDERS = st.builds(Order, id=st.integers(), lines=st.lists(st.builds(Line, item=st.text(), count=st.integers())))


@given(ORDERS)
def test_any_model_is_read_back(order: Order) -> None:
    for serializer in (PydanticSerializer(Order), PydanticSerializer()):
        assert Order.model_validate_json(serializer.serialize("orders", None, order)) == order


@given(st.builds(Point, x=st.integers(-(2**63), 2**63 - 1), kind=st.sampled_from("ab")))
def test_any_struct_is_read_back(point: Point) -> None:
    assert msgspec.json.decode(MsgspecSerializer(Point).serialize("t", None, point), type=Point) == point
    packed = MsgspecSerializer(Point, format="msgpack").serialize("t", None, point)
    assert msgspec.msgpack.decode(packed, type=Point) == point


@pytest.mark.parametrize(
    ("serializer", "value", "expected"),
    [
        (PydanticSerializer(Order | Line), Line(item="tea"), {"item": "tea", "count": 1}),
        (PydanticSerializer(list[Line]), [Line(item="tea")], [{"item": "tea", "count": 1}]),
        (PydanticSerializer(Order, validate=True), {"id": "7"}, {"id": 7, "lines": []}),
        (PydanticSerializer(Order, exclude_defaults=True), Order(id=7), {"id": 7}),
        (PydanticSerializer(exclude_defaults=True), Order(id=7), {"id": 7}),
        (PydanticSerializer(pydantic.BaseModel), Line(item="tea"), {"item": "tea", "count": 1}),
        (PydanticSerializer(Line), Priced(item="tea", cents=250), {"item": "tea", "count": 1}),
        (
            PydanticSerializer(Line, serialize_as_any=True),
            Priced(item="tea", cents=5),
            {"item": "tea", "count": 1, "cents": 5},
        ),
        (PydanticSerializer(Plain), Plain(1), {"x": 1}),
        (MsgspecSerializer(), [Point(1), Plain(2)], [{"x": 1, "kind": "a"}, {"x": 2}]),
        (MsgspecSerializer(Point | Plain), Plain(2), {"x": 2}),
        (MsgspecSerializer(Point, validate=True), {"x": 1}, {"x": 1, "kind": "a"}),
        (MsgspecSerializer(Point, validate=True), Plain(2), {"x": 2, "kind": "a"}),
        (MsgspecSerializer(enc_hook=str), {"x": Exception("e")}, {"x": "e"}),
        (OrjsonSerializer(), {"at": datetime.date(2024, 2, 29)}, {"at": "2024-02-29"}),
        (OrjsonSerializer(dict[str, int]), {"x": 1}, {"x": 1}),
        (OrjsonSerializer(default=str), Decimal("1.5"), "1.5"),
        (OrjsonSerializer(typing.Annotated[dict[str, Any], "note"]), {"x": 1}, {"x": 1}),
        (OrjsonSerializer(typing.Any | None), 5, 5),
    ],
)
def test_a_value_is_written_as_json_of_its_type(serializer: JsonSerializer, value: Any, expected: Any) -> None:
    assert written(serializer, value) == expected


@pytest.mark.parametrize(
    ("serializer", "value", "problem"),
    [
        (PydanticSerializer(Order), {"id": 7}, "Order needed, not dict"),
        (PydanticSerializer(), "secret", "BaseModel needed, not str"),
        (PydanticSerializer(Order), Order.model_construct(id="secret"), "id: Input should be a valid integer"),
        (PydanticSerializer(), Order.model_construct(id="secret"), "id: Input should be a valid integer"),
        (
            PydanticSerializer(Order),
            Order(id=1, lines=[Line.model_construct(item=b"secret", count=1)]),
            "lines.0.item: Input should be a valid string",
        ),
        (
            PydanticSerializer(Order, validate=True),
            {"id": "secret", "lines": 5},
            "id: Input should be a valid integer, unable to parse string as an integer; "
            "lines: Input should be a valid list",
        ),
        (PydanticSerializer(Line, validate=True), {"item": "secret tea"}, "item: refused (value_error)"),
        (PydanticSerializer(Row, validate=True), {"x": 1, "more": {"secret": "y"}}, "more.[...]: Input should be"),
        (PydanticSerializer(Strict, validate=True), {"itsName": 5}, "itsName: Input should be a valid string"),
        (
            PydanticSerializer(Strict, validate=True),
            {"itsName": "a", "secret": 1},
            "[...]: Extra inputs are not permitted",
        ),
        (PydanticSerializer(dict[int, int], validate=True), {41111111: "secret"}, "[...]: Input should be"),
        (PydanticSerializer(Pair, validate=True), {"left": "secret"}, "left: Input should be"),
        (
            PydanticSerializer(Line | Pair, validate=True),
            {"left": "secret"},
            "Line.item: Field required; Pair.left: Input should be",
        ),
        (PydanticSerializer(Tree, validate=True), {"over": {"secret": 1}}, "over.Tree.[...]: Extra inputs"),
        (
            PydanticSerializer(Tree, validate=True),
            {"over": ["secret"]},
            "over.Tree: Input should be a valid dictionary or instance of Tree; "
            "over.list[int].0: Input should be a valid integer",
        ),
        (PydanticSerializer(Shape, validate=True), {"kind": "disc", "radius": "secret"}, "disc.radius: Input should"),
        (PydanticSerializer(Shape, validate=True), {"kind": "secret"}, ": refused (union_tag_invalid)"),
        (PydanticSerializer(Row, validate=True), Lazy(), "x: refused (get_attribute_error)"),
        (PydanticSerializer(Row, validate=True), {"x": 1, "lines": failing()}, "lines.1: refused (iteration_error)"),
        (PydanticSerializer(Row, validate=True), {"x": 1, "more": Hostile()}, "more: refused (mapping_type)"),
        (PydanticSerializer(list[Shy]), [Shy(item="secret")], "list can't be encoded (KeyError in refuse)"),
        (
            PydanticSerializer(typing.Annotated[int, pydantic.PlainSerializer(lambda count: 1 // 0)]),
            7,
            "int can't be encoded (ZeroDivisionError in <lambda>)",
        ),
        (PydanticSerializer(), Computed(item="secret"), "Computed can't be encoded (ValueError)"),
        (PydanticSerializer(str), "secret\ud800", "str can't be encoded (UnicodeEncodeError)"),
        (PydanticSerializer(typing.Any), deep(1_000), "list can't be encoded (ValueError)"),
        (PydanticSerializer(typing.Any), b"secret\xff", "bytes can't be encoded (PydanticSerializationError)"),
        (MsgspecSerializer(Point), {"x": 7}, "Point needed, not dict"),
        (MsgspecSerializer(Point | Plain), "secret", " needed, not str"),
        (MsgspecSerializer(Point, validate=True), {"x": "secret"}, "$.x: Expected `int`, got `str`"),
        (MsgspecSerializer(Point, validate=True), {"x": 1, "kind": "secret"}, "$.kind: refused"),
        (MsgspecSerializer(Point, validate=True), {7: "secret"}, "key in $: Expected `str`"),
        (MsgspecSerializer(Point, validate=True), {}, "Object missing required field `x`"),
        (MsgspecSerializer(Needy, validate=True), {}, "Object missing required field `its-name`"),
        (MsgspecSerializer(Point, validate=True), {"x": 1, "kind": "a - at `secret"}, "$.kind: refused"),
        (MsgspecSerializer(list[Picky], validate=True), [{"item": "\n - at `secret`"}], "$[0]: refused"),
        (MsgspecSerializer(list[Picky], validate=True), [{"item": "Expected `secret`"}], "$[0]: refused"),
        (MsgspecSerializer(Picky, validate=True), {"item": " - at `secret`"}, "serialized: refused"),
        (MsgspecSerializer(typing.Literal["a"], validate=True), " - at `secret`", "serialized: refused"),
        (MsgspecSerializer(typing.Annotated[int, msgspec.Meta(ge=5)], validate=True), 3, "serialized: refused"),
        (MsgspecSerializer(), {"secret": object()}, "dict can't be encoded (TypeError)"),
        (OrjsonSerializer(dict), ["secret"], "dict needed, not list"),
        (
            OrjsonSerializer(),
            {"secret": Decimal(1)},
            "dict can't be encoded (Type is not JSON serializable: decimal.Decimal)",
        ),
        (OrjsonSerializer(), {1: "secret"}, "dict can't be encoded (Dict key must be str)"),
    ],
)
def test_what_does_not_fit(serializer: JsonSerializer, value: Any, problem: str) -> None:
    """The error has topic, field, the type wanted and given, but no part of the value; neither does its cause."""
    with pytest.raises(SchemaValidationError) as raised:
        serializer.serialize("orders", None, value)
    error = raised.value
    assert str(error).startswith("a record for topic 'orders' can't be serialized: ")
    assert f": {problem}" in str(error) or str(error).endswith(problem)
    assert "secret" not in repr(error)
    assert "41111111" not in repr(error)
    assert error.topic == "orders"
    assert error.__cause__ is None
    assert error.__context__ is None


def test_arguments_of_the_library_are_passed_on() -> None:
    for serializer in (OrjsonSerializer(option=orjson.OPT_SORT_KEYS), MsgspecSerializer(order="sorted")):
        assert serializer.serialize("t", None, {"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert PydanticSerializer(Order, indent=1).serialize("t", None, Order(id=7)).startswith(b'{\n "id": 7')


def test_an_error_lists_few_of_many_problems() -> None:
    with pytest.raises(SchemaValidationError) as raised:
        PydanticSerializer(list[int], validate=True).serialize("orders", None, ["secret"] * 100)
    assert [path for path, _ in raised.value.problems] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PydanticSerializer(validate=True),
        lambda: PydanticSerializer(pydantic.BaseModel, validate=True),
        lambda: PydanticSerializer(Order, exclude_non=True),
        lambda: PydanticSerializer(exclude_non=True),
        lambda: MsgspecSerializer(validate=True),
        lambda: MsgspecSerializer(format="xml"),
    ],
)
def test_what_can_not_be(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


async def test_in_a_producer(fake_kafka_cluster: FakeCluster) -> None:
    """As key and as value, awaited or not."""
    async with Producer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers,
        key_serializer=OrjsonSerializer(),
        value_serializer=PydanticSerializer(Line),
    ) as producer:
        await producer.send("orders", Line(item="tea"), key=7)
        producer.submit_nowait("orders", Line(item="cup"), key=7)
        with pytest.raises(SchemaValidationError, match="Line needed, not int"):
            await producer.send("orders", 5, key=7)
    assert [(record.key, record.value) for record in fake_kafka_cluster.records("orders")] == [
        (b"7", b'{"item":"tea","count":1}'),
        (b"7", b'{"item":"cup","count":1}'),
    ]
