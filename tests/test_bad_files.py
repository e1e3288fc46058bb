"""Truncated and hostile files are refused, and a save that fails keeps the file that was there."""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
from io import BytesIO

import pytest

import numbagrad as ng
from numbagrad.errors import FormatError


@pytest.fixture
def good_file(tmp_path):
    path = tmp_path / "good.safetensors"
    ng.save({"weight": ng.arange(6.0).view(2, 3), "bias": ng.ones(2)}, path)
    return path


def safetensors_file(header, body=b""):
    """Bytes of a file with this header: a dict, or bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(shape, start, stop, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


class Trap:
    """What a pickle would run."""

    def __reduce__(self):
        return exec, ("raise SystemExit('ran code')",)


HOSTILE = {
    "empty": b"",
    "short": b"\x01\x02",
    "zeros": b"\0" * 64,
    "text": b"This is no model, but a letter to a friend.",
    "pickle": pickle.dumps({"weight": Trap()}),
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "huge header": struct.pack("<Q", 2**63 - 1) + b"{}",
    "header past the end": struct.pack("<Q", 1000) + b"{}",
    "header is no json": safetensors_file(b"{not json"),
    "header is a list": safetensors_file(b"[1, 2]"),
    "header is not utf-8": safetensors_file(b"\xff\xfe{}"),
    "deep header": safetensors_file(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "data past the end": safetensors_file({"a": entry([4], 0, 16)}, b"\0" * 8),
    "negative offsets": safetensors_file({"a": entry([1], -4, 0)}, b"\0" * 4),
    "shape and size differ": safetensors_file({"a": entry([3], 0, 8)}, b"\0" * 8),
    "huge shape": safetensors_file({"a": entry([2**40, 2**40], 0, 4)}, b"\0" * 4),
    "negative shape": safetensors_file({"a": entry([-1, -1], 0, 4)}, b"\0" * 4),
    "unknown dtype": safetensors_file({"a": entry([1], 0, 4, "F99")}, b"\0" * 4),
    "overlap": safetensors_file({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, b"\0" * 4),
    "hole": safetensors_file({"a": entry([1], 4, 8)}, b"\0" * 8),
    "no offsets": safetensors_file({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_load_refuses_hostile_files(tmp_path, content):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"hostile\.safetensors"):
        ng.load(path)
    assert path.read_bytes() == content
    with pytest.raises(FormatError, match="BytesIO"):
        ng.load(BytesIO(content))


def test_load_refuses_a_good_file_cut_anywhere(good_file, tmp_path):
    content = good_file.read_bytes()
    path = tmp_path / "cut.safetensors"
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"cut\.safetensors"):
            ng.load(path)
    path.write_bytes(content)
    assert ng.load(path)["bias"].tolist() == [1.0, 1.0]


def test_load_of_a_missing_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ng.load(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize("wrong", [{"f": math.sin}, {"weight": Trap()}, 3.0 + 1j, {1: object()}])
def test_a_failing_save_keeps_the_old_file(good_file, wrong):
    before = good_file.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        ng.save(wrong, good_file)
    assert good_file.read_bytes() == before
    assert [p.name for p in good_file.parent.iterdir()] == [good_file.name]


def test_a_save_that_breaks_midway_keeps_the_old_file(good_file, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    before = good_file.read_bytes()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        ng.save({"weight": ng.zeros(2)}, good_file)
    monkeypatch.undo()
    assert good_file.read_bytes() == before
    assert [p.name for p in good_file.parent.iterdir()] == [good_file.name]
