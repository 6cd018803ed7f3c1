"""Immutable records: what of a frozen dataclass they keep."""

from __future__ import annotations

import pytest

from outlast.light import fields, frozen, replace


@frozen
class Point:
    x: int
    y: int = 2

    @property
    def sum(self) -> int:
        return self.x + self.y


@frozen
class Named(Point):
    name: str = "here"


@frozen
class Pair:
    left: int
    right: int


@frozen
class Same:
    x: int
    y: int = 2


def test_values_are_given_by_place_by_name_or_by_default():
    assert (Point(1).x, Point(1).y) == (1, 2)
    assert Point(1, 3) == Point(x=1, y=3) == Point(y=3, x=1)
    assert Point(4, 5).sum == 9


def test_a_record_cannot_be_changed():
    point = Point(1)
    with pytest.raises(AttributeError, match="immutable"):
        point.x = 5  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        point.z = 5  # type: ignore[attr-defined]
    assert point == Point(1)


@pytest.mark.parametrize(
    ("args", "named", "wrong"),
    [((), {}, "x"), ((1,), {"z": 3}, "z"), ((1, 2, 3), {}, "takes x, y")],
)
def test_missing_unknown_and_too_many_values_are_refused(args, named, wrong):
    with pytest.raises(TypeError, match=wrong):
        Point(*args, **named)


def test_a_value_given_twice_is_refused():
    with pytest.raises(TypeError, match="twice"):
        Point(1, x=2)  # type: ignore[misc]


def test_equal_means_same_type_and_same_values():
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    others: list[object] = [Same(1), Named(1), (1, 2)]
    assert Point(1) not in others


def test_equal_records_have_equal_hashes_however_they_were_made():
    assert hash(Point(1, 3)) == hash(Point(y=3, x=1))
    assert Pair(left=1, right=2) == Pair(right=2, left=1)
    assert hash(Pair(left=1, right=2)) == hash(Pair(right=2, left=1))
    assert hash(Named(name="a", x=1)) == hash(Named(1, 2, "a"))
    assert len({Point(1, 3), Point(y=3, x=1), Point(1, 4)}) == 2


def test_repr_shows_type_names_and_values():
    assert repr(Point(y=3, x=1)) == "Point(x=1, y=3)"


def test_match_takes_values_apart():
    match Point(1, 7):
        case Point(1, y):
            assert y == 7
        case _:
            pytest.fail("did not match")


def test_a_record_extends_another():
    named = Named(1, 2, "there")
    assert fields(named) == {"x": 1, "y": 2, "name": "there"}
    assert named.sum == 3
    assert isinstance(named, Point)


def test_fields_come_in_the_order_they_were_declared():
    assert list(fields(Named(name="a", y=1, x=2))) == ["x", "y", "name"]


def test_replaced_makes_another_record():
    first = Named(1, 2, "a")
    second = replace(first, y=9)
    assert second == Named(1, 9, "a")
    assert first == Named(1, 2, "a")
    with pytest.raises(TypeError, match="z"):
        replace(first, z=1)
