"""Saving and loading: structure, sharing, damaged and hostile files."""

from __future__ import annotations

import json
import math
import os
import struct
from io import BytesIO

import numpy as np
import pytest
import safetensors.numpy

import numbagrad as ng
from numbagrad import io, nn, optim
from numbagrad.errors import FormatError


def plain(value):
    """Tensors as (dtype, shape, list), so that structures compare."""
    if isinstance(value, ng.Tensor):
        return str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(member) for member in value)
    return value


OBJECTS = {
    "tensor": lambda: ng.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "scalar": lambda: ng.tensor(2.5),
    "empty": lambda: ng.tensor(np.zeros((0, 3), "float32")),
    "state": lambda: {"weight": ng.tensor([1.0]), "bias": ng.tensor([2, 3])},
    "dtypes": lambda: {
        name: ng.tensor(np.array([1, 0, 1], name))
        for name in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
    },
    "nested": lambda: {
        "epoch": 3,
        "big": 2**100,
        "rate": 0.1,
        "limits": (math.inf, -0.0, 1e-320),
        "name": "näme \u0000 'quoted'",
        "flags": [True, False, None, [], {}, ()],
        7: {1.5: ng.tensor([1.0]), None: "none", True: 1},
    },
    "collision": lambda: {"a.b": ng.tensor([1.0]), "a": {"b": ng.tensor([2.0])}},
    "metadata": lambda: {"__metadata__": ng.tensor([1.0])},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trip(name, tmp_path):
    value = OBJECTS[name]()
    io.save(value, tmp_path / "x.safetensors")
    found = io.load(tmp_path / "x.safetensors")
    assert plain(found) == plain(value)
    assert list(tmp_path.iterdir()) == [tmp_path / "x.safetensors"]


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trip_through_an_open_file(name, tmp_path):
    value = OBJECTS[name]()
    buffer = BytesIO()
    io.save(value, buffer)
    buffer.seek(0)
    assert plain(io.load(buffer)) == plain(value)
    with open(tmp_path / "x.safetensors", "wb") as file:
        io.save(value, file)
    assert plain(io.load(tmp_path / "x.safetensors")) == plain(value)
    with open(tmp_path / "x.safetensors", "rb") as file:
        assert plain(io.load(file)) == plain(value)


def test_open_files_hold_halves(tmp_path):
    buffer = BytesIO()
    value = {str(d): ng.tensor([1.5, -2.0]).to(d) for d in (ng.bfloat16, ng.float16)}
    io.save(value, buffer)
    assert plain(io.load(BytesIO(buffer.getvalue()))) == plain(value)


def test_where_tensors_go(tmp_path):
    path = tmp_path / "x.safetensors"
    io.save({"weight": ng.ones(2)}, path)
    asked = []

    def as_it_is(tensor, place):
        asked.append((tensor.shape, place))
        return tensor

    for place in ("cpu", ng.device("cpu"), {"cuda:0": "cpu"}, {"cpu": "cpu"}, as_it_is):
        assert io.load(path, map_location=place)["weight"].tolist() == [1.0, 1.0]
    assert io.load(path, lambda tensor, place: None)["weight"].device == ng.device("cpu")
    assert asked == [((2,), "cpu")]


def test_numbers_keep_their_type(tmp_path):
    io.save([1, 1.0, True, np.float64(2), np.int32(3), np.False_], str(tmp_path / "x"))
    found = io.load(str(tmp_path / "x"))
    assert [type(v) for v in found] == [int, float, bool, float, int, bool]
    io.save({np.int64(3): 1, np.True_: 2}, tmp_path / "x")
    assert io.load(tmp_path / "x") == {3: 1, True: 2}


def test_nan_is_kept(tmp_path):
    io.save({"best": math.nan, "x": ng.tensor([math.nan])}, tmp_path / "x")
    found = io.load(tmp_path / "x")
    assert math.isnan(found["best"]) and math.isnan(found["x"].item())


def test_strided_tensors_keep_their_values(tmp_path):
    base = ng.tensor(np.arange(12.0).reshape(3, 4))
    value = {"t": base.t(), "column": base[:, 1], "expanded": ng.tensor([1.0, 2.0]).expand(3, 2)}
    io.save(value, tmp_path / "x")
    found = io.load(tmp_path / "x")
    assert plain(found) == plain(value)
    assert all(tensor.is_contiguous() for tensor in found.values())


def test_shared_tensors_are_written_once_and_shared_again(tmp_path):
    weight = ng.tensor(np.zeros(1000, "float32"))
    io.save({"a": weight, "b": weight.detach(), "part": weight[:10]}, tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < 6000
    found = io.load(tmp_path / "x")
    found["a"][0] = 5.0
    assert found["b"][0].item() == 5.0
    assert found["part"].tolist() == [0.0] * 10


def test_tied_parameters_of_a_module(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    io.save(model.state_dict(), tmp_path / "x")
    other = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    other.load_state_dict(io.load(tmp_path / "x"))
    assert other[1].weight.tolist() == model[0].weight.tolist()


def test_a_checkpoint_continues_training(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters())

    def train(model, optimizer):
        optimizer.zero_grad()
        model(ng.tensor([[1.0, 2.0, 3.0]])).sum().backward()
        optimizer.step()

    train(model, optimizer)
    path = tmp_path / "checkpoint"
    io.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    train(model, optimizer)

    resumed = nn.Linear(3, 2)
    again = optim.Adam(resumed.parameters(), lr=9.0)
    saved = io.load(path)
    resumed.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(resumed, again)
    assert plain(resumed.state_dict()) == plain(model.state_dict())


def test_other_readers_can_read_the_tensors(tmp_path):
    model = nn.Linear(3, 2)
    io.save({"model": model.state_dict()}, tmp_path / "x")
    found = safetensors.numpy.load_file(tmp_path / "x")
    assert sorted(found) == ["model.bias", "model.weight"]
    np.testing.assert_array_equal(found["model.weight"], model.weight.detach().numpy())


def test_files_of_other_writers_load_as_a_dict(tmp_path):
    safetensors.numpy.save_file({"w": np.ones((2, 3), "float32")}, tmp_path / "x")
    found = io.load(tmp_path / "x")
    assert list(found) == ["w"] and found["w"].shape == (2, 3)
    found["w"].add_(1.0)  # its memory may be written


def test_the_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x"
    io.save({"a": ng.tensor([1.0])}, path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        io.save({"a": ng.tensor([2.0]), "b": object()}, path)

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        io.save({"a": ng.tensor([2.0])}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_rights_of_any_new_file(tmp_path):
    io.save(ng.tensor([1.0]), tmp_path / "x")
    (tmp_path / "y").write_text("")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"cannot save a Linear at \[models\]\[0\]"):
        io.save({"models": [nn.Linear(1, 1)]}, tmp_path / "x")
    with pytest.raises(TypeError, match="keys must be strings or numbers"):
        io.save({(1, 2): 3}, tmp_path / "x")
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contain itself"):
        io.save(loop, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def packed(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def with_structure(structure, tensors=True):
    text = structure if isinstance(structure, str) else json.dumps(structure)
    header = {"__metadata__": {"numbagrad": text}}
    if tensors:
        header["w"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    return packed(header, b"\0\0\0\0" if tensors else b"")


def entry(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


HOSTILE = {
    "empty": b"",
    "short": b"\x01\x02",
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.",
    "zip": b"PK\x03\x04" + bytes(100),
    "huge header": packed(b"{}", length=2**63),
    "header beyond the file": packed(b"{}", length=1000),
    "not json": packed(b"x" * 16),
    "huge tensor": packed(entry(shape=[2**40, 2**20], data_offsets=[0, 2**62])),
    "overflowing shape": packed(entry(shape=[2**63, 2**63]), bytes(8)),
    "negative shape": packed(entry(shape=[-1]), bytes(8)),
    "offsets beyond the file": packed(entry(data_offsets=[0, 80]), bytes(8)),
    "offsets reversed": packed(entry(data_offsets=[8, 0]), bytes(8)),
    "shape and offsets differ": packed(entry(shape=[3]), bytes(8)),
    "unknown dtype": packed(entry(dtype="F33"), bytes(8)),
    "float8": packed(entry(dtype="F8_E4M3", shape=[8]), bytes(8)),
    "complex64": packed(entry(dtype="C64", shape=[1]), bytes(8)),
    "bfloat16 of another size": packed(entry(dtype="BF16", shape=[3]), bytes(8)),
    "structure is no json": with_structure("{"),
    "structure is a list": with_structure([1]),
    "structure of another version": with_structure({"version": 99, "object": 1}),
    "structure without object": with_structure({"version": 1}),
    "a tensor that is not there": with_structure({"version": 1, "object": {"tensor": "v"}}, False),
    "a tensor named by a list": with_structure({"version": 1, "object": {"tensor": [1]}}),
    "an unknown kind": with_structure({"version": 1, "object": {"call": "os.system"}}),
    "two kinds": with_structure({"version": 1, "object": {"list": [], "tuple": []}}),
    "a bare list": with_structure({"version": 1, "object": [1]}),
    "a bad float": with_structure({"version": 1, "object": {"float": "os"}}),
    "a number for a float": with_structure({"version": 1, "object": {"float": 1}}),
    "an unhashable key": with_structure({"version": 1, "object": {"dict": [[{"list": []}, 1]]}}),
    "pairs of one": with_structure({"version": 1, "object": {"dict": [[1]]}}),
    "too deep": with_structure('{"version": 1, "object": ' + '{"list": [' * 5000 + "]}" * 5001),
    "too deep for json": with_structure('{"version": 1, "object": ' + "[" * 100000),
    "huge number": with_structure('{"version": 1, "object": ' + "9" * 10000 + "}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_files_are_refused_by_name(name, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(FormatError, match=r"model\.safetensors (cannot be read|is a pickle)"):
        io.load(path)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "x"
    io.save({"a": ng.tensor([1.0, 2.0]), "b": [1, "two"]}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            io.load(path)


def test_flipped_bytes_never_crash(tmp_path):
    path = tmp_path / "x"
    io.save({"a": ng.tensor([1.0, 2.0]), "b": [1, "two"]}, path)
    whole = path.read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        for at in draw.integers(0, len(whole), 3):
            changed[at] = draw.integers(0, 256)
        path.write_bytes(changed)
        try:
            io.load(path)
        except FormatError:
            pass


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        io.save(ng.tensor([1.0]), tmp_path / "missing" / "x")
    with pytest.raises(IsADirectoryError):
        io.save(ng.tensor([1.0]), tmp_path)

    def fail(*args):
        raise safetensors.SafetensorError("no space left")

    monkeypatch.setattr(io, "save_file", fail)
    with pytest.raises(OSError, match="cannot be written: no space left"):
        io.save(ng.tensor([1.0]), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_missing_files_and_folders_are_the_systems_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        io.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        io.load(tmp_path)


@pytest.mark.parametrize("weights_only", [True, False])
def test_weights_only_is_taken(tmp_path, weights_only):
    io.save({"x": ng.ones(2)}, tmp_path / "file")
    assert io.load(tmp_path / "file", weights_only=weights_only)["x"].tolist() == [1.0, 1.0]
