"""Protobuf messages as in generated code: four files, one of which imports another, made without protoc."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

F = FieldDescriptorProto


def _message(name: str, *fields: tuple[str, int, str], nested: tuple[DescriptorProto, ...] = ()) -> DescriptorProto:
    message = DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind, type_name) in enumerate(fields, 1):
        message.field.add(name=field, number=number, label=F.LABEL_OPTIONAL, type=kind, type_name=type_name or None)
    return message


_money = FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
_money.message_type.append(_message("Money", ("amount", F.TYPE_INT64, ""), ("currency", F.TYPE_STRING, "")))

_orders = FileDescriptorProto(
    name="shop/orders.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"]
)
_orders.message_type.append(_message("Customer", ("name", F.TYPE_STRING, "")))
_orders.message_type.append(
    _message(
        "Order",
        ("id", F.TYPE_INT32, ""),
        ("item", F.TYPE_STRING, ""),
        ("price", F.TYPE_MESSAGE, ".shop.Money"),
        nested=(_message("Draft"), _message("Line", ("item", F.TYPE_STRING, ""), nested=(_message("Part"),))),
    )
)

_strict = FileDescriptorProto(name="shop/strict.proto", package="shop", syntax="proto2")
_strict.message_type.append(_message("Strict", ("id", F.TYPE_INT32, "")))
_strict.message_type[0].field[0].label = F.LABEL_REQUIRED
_entries = [
    _message(name, ("key", kind, ""), ("value", F.TYPE_MESSAGE, ".shop.Strict"))
    for name, kind in (("ByNameEntry", F.TYPE_STRING), ("ByNumberEntry", F.TYPE_INT64))
]
for _each in _entries:
    _each.options.map_entry = True
_strict.message_type.append(
    _message(
        "Stricts",
        ("by_name", F.TYPE_MESSAGE, ".shop.Stricts.ByNameEntry"),
        ("by_number", F.TYPE_MESSAGE, ".shop.Stricts.ByNumberEntry"),
        ("listed", F.TYPE_MESSAGE, ".shop.Strict"),
        ("one", F.TYPE_MESSAGE, ".shop.Strict"),
        ("counts", F.TYPE_INT32, ""),
        nested=tuple(_entries),
    )
)
for _field in (0, 1, 2, 4):
    _strict.message_type[1].field[_field].label = F.LABEL_REPEATED
_strict.message_type[1].extension_range.add(start=100, end=101)
_strict.extension.add(
    name="also", number=100, label=F.LABEL_OPTIONAL, type=F.TYPE_MESSAGE, type_name=".shop.Strict",
    extendee=".shop.Stricts",
)  # fmt: skip

_entry = _message("CountsEntry", ("key", F.TYPE_STRING, ""), ("value", F.TYPE_INT32, ""))
_entry.options.map_entry = True
_basket = FileDescriptorProto(name="shop/basket.proto", package="shop", syntax="proto3")
_basket.message_type.append(
    _message("Basket", ("counts", F.TYPE_MESSAGE, ".shop.Basket.CountsEntry"), nested=(_entry, _message("Gift")))
)
_basket.message_type[0].field[0].label = F.LABEL_REPEATED

_pool = DescriptorPool()
for _file in (_money, _orders, _strict, _basket):
    _pool.Add(_file)


def _class(name: str) -> type:
    return GetMessageClass(_pool.FindMessageTypeByName(name))


Money, Customer, Order, Strict = map(_class, ("shop.Money", "shop.Customer", "shop.Order", "shop.Strict"))
Stricts, also = _class("shop.Stricts"), _pool.FindExtensionByName("shop.also")
Line, Part = _class("shop.Order.Line"), _class("shop.Order.Line.Part")
Basket, Gift = _class("shop.Basket"), _class("shop.Basket.Gift")
