"""Tests of `contrib.training`."""

import copy
import pickle

import pytest

from legacy_opt.compat import contrib
from tests.contrib.pieces import ORIGINS, piece


def made(origin, **arguments):
    values = dict(
        {"rate": 0.1, "units": 64, "name": "adam", "on": True, "sizes": [1, 2], "none": None},
        **arguments,
    )
    return piece(origin, "training.HParams")(**values)


@pytest.mark.parametrize("origin", ORIGINS)
def test_attributes_and_dicts(origin):
    found = made(origin, scales=(0.5, 1.0))
    assert (found.rate, found.sizes, found.scales, found.none) == (0.1, [1, 2], (0.5, 1.0), None)
    assert "rate" in found and "momentum" not in found and "parse" not in found
    assert list(found.values()) == ["rate", "units", "name", "on", "sizes", "none", "scales"]
    assert str(found).startswith("rate=0.1,units=64,name=adam,on=True,sizes=[1, 2]")
    assert repr(piece(origin, "training.HParams")(b=1, a="x")) == "HParams([('a', 'x'), ('b', 1)])"
    assert (found.get("units"), found.get("units", 3), found.get("momentum", 0.9)) == (64, 64, 0.9)
    assert found.get("momentum") is None
    found.del_hparam("rate")
    found.del_hparam("rate")
    assert "rate" not in found and not hasattr(found, "rate")
    found.set_model_structure("crosses")
    assert found.get_model_structure() == "crosses"


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(
    "text, expected",
    [
        ("rate=3", {"rate": 3.0}),
        ("rate = -.5e2, units=7", {"rate": -50.0, "units": 7}),
        ("name=", {"name": ""}),
        ("name=a b", {"name": "a b"}),
        ("on=false", {"on": False}),
        ("on=1,", {"on": True}),
        ("sizes=[3,4 5]", {"sizes": [3, 4, 5]}),
        ("sizes=[]", {"sizes": []}),
        ("", {}),
    ],
)
def test_parse(origin, text, expected):
    found, start = made(origin), made(origin).values()
    assert found.parse(text) is found
    assert found.values() == dict(start, **expected)
    assert [type(value) for value in found.values().values()] == [
        type(value) for value in dict(start, **expected).values()
    ]


REFUSED = {
    "momentum=1": "Unknown hyperparameter type for momentum",
    "units=1.5": "Could not parse hparam 'units' of type 'int' with value '1.5' in units=1.5",
    "on=yes": "Could not parse hparam 'on' of type 'bool' with value 'yes' in on=yes",
    "sizes=[1,x]": "Could not parse hparam 'sizes' of type 'int' with value '1,x' in sizes=[1,x]",
    "units=1,units=2": "Multiple assignments to variable 'units' in units=1,units=2",
    "sizes=[1],sizes[0]=2": "Multiple assignments to variable 'sizes' in sizes=[1],sizes[0]=2",
    "sizes[0]=1,sizes[0]=2": (
        "Multiple assignments to variable 'sizes[0]' in sizes[0]=1,sizes[0]=2"
    ),
    "sizes[0]=[1]": "Assignment of a list to a list index.",
    "sizes[0]=1": "Must pass a list for multi-valued parameter: sizes.",
    "units=[1]": "Must not pass a list for single-valued parameter: units",
    "units": "Malformed hyperparameter value: units",
    "rate=1,,units=2": "Malformed hyperparameter value: ,units=2",
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("text", REFUSED)
def test_parse_refuses(origin, text):
    with pytest.raises(ValueError) as caught:
        made(origin).parse(text)
    assert str(caught.value) == REFUSED[text]


@pytest.mark.parametrize("origin", ORIGINS)
def test_parse_values(origin):
    parse_values = piece(origin, "training.parse_values")
    types = {"a": int, "b.c": float, "on": bool}
    assert parse_values("a[1]=5,a[0]=4,b.c=[1,2],on=0", types) == {
        "a": {1: 5, 0: 4},
        "b.c": [1.0, 2.0],
        "on": False,
    }
    assert parse_values("x=1,a=2,y=[3]", types, ignore_unknown=True) == {"a": 2}


@pytest.mark.parametrize("origin", ORIGINS)
def test_set_hparam_converts_without_loss(origin):
    found = made(origin)
    for name, value in {"rate": 2, "sizes": [True and 3], "none": "x", "name": b"y"}.items():
        if name != "name":
            found.set_hparam(name, value)
    assert (found.rate, type(found.rate), found.sizes, found.none) == (2.0, float, [3], "x")
    for name, value, kind in (
        *(("units", 1.0, int), ("units", True, int), ("units", "1", int), ("on", 1, bool)),
        *(("rate", "1", float), ("name", 1, str)),
    ):
        with pytest.raises(ValueError) as caught:
            found.set_hparam(name, value)
        message = f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}"
        assert str(caught.value) == message
    with pytest.raises(KeyError, match="momentum"):
        found.set_hparam("momentum", 1)


@pytest.mark.parametrize("origin", ORIGINS)
def test_get_with_a_default_of_another_type(origin):
    found = made(origin)
    for name, default in (("units", "x"), ("units", [1]), ("sizes", 1), ("sizes", ["x"])):
        with pytest.raises(ValueError, match=f"Hparam '{name}' of type .* is incompatible with"):
            found.get(name, default)


@pytest.mark.parametrize("origin", ORIGINS)
def test_json(origin):
    found = made(origin)
    assert found.to_json(separators=(",", ":"), sort_keys=True) == (
        '{"name":"adam","none":null,"on":true,"rate":0.1,"sizes":[1,2],"units":64}'
    )
    assert found.parse_json('{"units": 3, "sizes": [7]}') is found
    assert (found.units, found.sizes) == (3, [7])
    with pytest.raises(ValueError, match="Must pass a list"):
        found.parse_json('{"sizes": 7}')


@pytest.mark.parametrize("origin", ORIGINS)
def test_names_that_are_refused(origin):
    for name in "parse", "values", "rate":
        with pytest.raises(ValueError, match="Hyperparameter name is reserved: " + name):
            made(origin).add_hparam(name, 1)
    with pytest.raises(ValueError, match="Multi-valued hyperparameters cannot be empty: x"):
        made(origin, x=[])


def test_copies():
    found = made("legacy_opt")
    for other in copy.deepcopy(found), pickle.loads(pickle.dumps(found)):
        other.parse("units=1")
        assert (other.units, found.units) == (1, 64)


def test_what_only_we_refuse():
    with pytest.raises(ValueError, match="hparam_def must be None.*Pass names and values"):
        contrib.training.HParams(hparam_def=object())
    with pytest.raises(KeyError, match="unit: no such hyperparameter. Did you mean 'units'?"):
        made("legacy_opt").set_hparam("unit", 1)
