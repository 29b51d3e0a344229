"""A small hand-made schema with every slot type, shared names and a Chinese service, for tests of the tracker."""

from __future__ import annotations

from dialoom.schema import Intent, Schema, Service, Slot, SlotType

INN = Service(
    "inn",
    "Rooms in town",
    (
        Slot("name", "Name of the inn"),
        Slot("area", "Part of town", True, ("North", "South", "Old Town")),
        Slot("type", "Kind of house", True, ("hotel", "guest house")),
        Slot("wifi", "Wifi wanted", type=SlotType.BOOLEAN),
        Slot("guests", "Number of guests", type=SlotType.INTEGER),
        Slot("arrival", "Day of arrival", type=SlotType.DATE),
        Slot("weekday", "Weekday of arrival", type=SlotType.DAY),
    ),
    (
        Intent("FindInn", "Look for an inn", optional_slots={"area": "dontcare", "type": "dontcare"}),
        Intent("BookInn", "Book a room", required_slots=("name", "guests")),
    ),
    ("inn", "pension"),
)
CAB = Service(
    "cab",
    "Rides in town",
    (
        Slot("from", "Where it starts"),
        Slot("to", "Where it goes"),
        Slot("pickup", "Pick-up time", type=SlotType.TIME),
        Slot("guests", "Number of riders", type=SlotType.INTEGER),
    ),
    (Intent("OrderCab", "Order a cab"),),
)
TABLE = Service(
    "table",
    "Tables at restaurants",
    (
        Slot("name", "Name of the restaurant"),
        Slot("cuisine", "Cuisine"),
        Slot("time", "Time of the table", type=SlotType.TIME),
    ),
    (Intent("BookTable", "Book a table"), Intent("FindInn", "Find a restaurant with rooms")),
    ("bistro",),
)
TEAHOUSE = Service(
    "茶馆",
    "订茶馆的座位",
    (Slot("店名", "茶馆的名称"), Slot("包间", "是否要包间", True, ("有", "没有"))),
    (Intent("订座", "预订座位"),),
    ("茶馆", "茶楼"),
)
TOWN = Schema("town", {s.name: s for s in (INN, CAB, TABLE, TEAHOUSE)})
