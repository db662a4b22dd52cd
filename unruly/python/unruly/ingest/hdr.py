"""HdrHistogram's compressed form, versions 0 to 2: what Java, C, Go and Rust clients log.

A histogram is a list of counts over buckets whose width doubles every `sub_buckets / 2` of them,
written big-endian behind a header, deflated, and coded as base64. Version 2 writes counts as
zig-zag LEB128 in which a negative number is a run of zeros; version 1 writes words of a fixed size
behind the same header; version 0 has a shorter one.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from unruly.errors import IngestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

V0, V1, V2 = 0x1C849308, 0x1C849301, 0x1C849303
COMPRESSED: Final = {0x1C849309, 0x1C849302, 0x1C849304}
DOUBLE: Final = {0x0C72124E, 0x0C72124F}
WORD_SIZE_MASK: Final = 0xF0
V2_WORD: Final = 0x10
INFLATION_MAX: Final = 100
INFLATED_FREE: Final = 1 << 20
"""Runs of zeros are short before they are compressed, so that a real histogram inflates by less."""
INFLATED_MAX: Final = 64 << 20
"""A 5-digit histogram of 2^63 values has 6 M counts of at most 9 bytes: more is garbage."""
COUNT_MAX: Final = (1 << 63) - 1
DIGITS: Final = range(6)
VALUE_BITS: Final = 63


@dataclass(frozen=True)
class HdrHistogram:
    """Counts over the buckets of one recorder, in the recorder's own unit.

    ``low`` and ``high`` are the edges of the non-empty buckets (equal where a bucket is one
    value), ``count`` what lies in each; ``ratio`` is what a recorder of doubles multiplied by.
    """

    significant_digits: int
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.int64]
    ratio: float

    @property
    def n(self) -> int:
        """Values recorded."""
        return int(self.count.sum())


def decode(text: str) -> HdrHistogram:
    """Decode one base64 field of a histogram log.

    Parameters
    ----------
    text : str
        ``HISTF...`` (version 2), ``HISTE...`` (version 1) or ``HISTi...`` (version 0), compressed
        or not.

    Raises
    ------
    IngestError
        If the text is not base64 or not a histogram, is truncated, or has a count below 0.

    References
    ----------
    .. [1] G. Tene, HdrHistogram, AbstractHistogram.decodeFromByteBuffer.
    """
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(f"not base64 ({error})") from error
    return decode_bytes(data)


def decode_bytes(data: bytes) -> HdrHistogram:
    """Decode a histogram in binary form, compressed or not."""
    cookie = _unpack(">i", data, 0)[0]
    if cookie & ~WORD_SIZE_MASK in DOUBLE or cookie in DOUBLE:
        raise _wrong("a histogram of doubles, whose unit only its program knows")
    if cookie & ~WORD_SIZE_MASK in COMPRESSED:
        (length,) = _unpack(">i", data, 4)
        if not 0 <= length <= len(data) - 8:
            raise _wrong(f"{len(data) - 8} bytes of content where its header says {length}")
        data = _inflate(data[8 : 8 + length])
        cookie = _unpack(">i", data, 0)[0]
    base = cookie & ~WORD_SIZE_MASK
    if base in (V1, V2):
        payload, _, digits, lowest, highest = _unpack(">iiiqq", data, 4)
        ratio = float(_unpack(">d", data, 32)[0])
        body = data[40 : 40 + payload] if 0 <= payload <= len(data) - 40 else None
    elif base == V0:
        digits, lowest, highest, _ = _unpack(">iqqq", data, 4)
        ratio, body = 1.0, data[32:]
    else:
        raise _wrong(f"starts with {cookie & 0xFFFFFFFF:#010x}, which is no histogram")
    if body is None:
        raise _wrong("its payload is shorter than its header says")
    if digits not in DIGITS or lowest < 1 or highest < 2 * lowest or not 0 < ratio < float("inf"):
        raise _wrong(f"{digits} digits from {lowest} to {highest}, ratio {ratio}")
    most = _places(digits, int(lowest))
    place, counts = _varints(body, most) if base == V2 else _words(body, cookie)
    if (counts < 0).any():
        raise _wrong(f"a count is {counts.min()}")
    if place.size and place[-1] >= most:
        raise _wrong(f"a value of more than {VALUE_BITS} bits")
    low, high = edges(place, digits, int(lowest))
    return HdrHistogram(digits, low * ratio, high * ratio, counts, ratio)


def encode(place: NDArray[np.int64], count: NDArray[np.int64], *, digits: int, highest: int) -> str:
    """Encode counts at bucket indices (ascending, lowest value 1) as a version 2 field."""
    body = bytearray()
    following = 0
    for index, number in zip(place.tolist(), count.tolist(), strict=True):
        zeros = index - following
        if zeros == 1:
            body += _varint(0)
        elif zeros > 1:
            body += _varint(-zeros)
        body += _varint(number)
        following = index + 1
    header = struct.pack(">iiiiqqd", V2 | V2_WORD, len(body), 0, digits, 1, highest, 1.0)
    packed = zlib.compress(bytes(header + body))
    whole = struct.pack(">ii", 0x1C849304 | V2_WORD, len(packed)) + packed
    return base64.b64encode(whole).decode("ascii")


def edges(
    place: NDArray[np.int64], digits: int, lowest: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the edges of buckets by their index; they are equal where a bucket is one value.

    Examples
    --------
    >>> low, high = edges(np.array([5, 2047, 2048, 4000]), 3)
    >>> low.tolist(), high.tolist()
    ([5.0, 2047.0, 2048.0, 7808.0], [5.0, 2047.0, 2050.0, 7812.0])
    """
    half_bits = max(1, int(np.ceil(np.log2(2 * 10**digits)))) - 1
    half = 1 << half_bits
    unit = lowest.bit_length() - 1
    bucket = (place >> half_bits) - 1
    sub = (place & (half - 1)) + half
    first = bucket < 0
    sub, bucket = np.where(first, sub - half, sub), np.where(first, 0, bucket)
    # as doubles: the largest buckets do not fit an integer
    low = np.ldexp(sub.astype(np.float64), bucket + unit)
    size = np.ldexp(1.0, bucket + unit)
    return low, np.where(size > 1, low + size, low)


def _places(digits: int, lowest: int) -> int:
    """How many buckets the largest histogram of this precision has."""
    half_bits = max(1, int(np.ceil(np.log2(2 * 10**digits)))) - 1
    doublings = VALUE_BITS - half_bits - (lowest.bit_length() - 1)
    return (max(0, doublings) + 1) << half_bits


def _inflate(data: bytes) -> bytes:
    machine = zlib.decompressobj()
    most = min(INFLATED_MAX, INFLATED_FREE + INFLATION_MAX * len(data))
    try:
        found = machine.decompress(data, most)
    except zlib.error as error:
        raise _wrong(f"does not inflate ({error})") from error
    if machine.unconsumed_tail:
        raise _wrong(f"inflates to more than {most} bytes")
    return found


def _unpack(form: str, data: bytes, offset: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, data, offset)
    except struct.error as error:
        raise _wrong(f"ends after {len(data)} bytes") from error


def _varints(body: bytes, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places below `most` of counts that are not 0, and the counts: a run of zeros takes no memory.

    Zig-zag LEB128 of at most nine bytes each; the ninth byte carries eight bits.
    """
    places, counts = array("q"), array("q")
    place = at = 0
    size = len(body)
    while at < size:
        value = shift = 0
        while True:
            if at >= size:
                raise _wrong("its last count is cut off")
            byte = body[at]
            at += 1
            if shift == 56:
                value |= byte << 56
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (value >> 1) ^ -(value & 1)
        if number > COUNT_MAX:
            raise _wrong(f"a count is {number}")
        if number > 0:
            places.append(place)
            counts.append(number)
        place += max(1, -number)
        if place > most:
            raise _wrong(f"more than {most} buckets")
    return np.array(places, dtype=np.int64), np.array(counts, dtype=np.int64)


def _varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    value &= (1 << 64) - 1
    out = bytearray()
    for _ in range(8):
        if value < 0x80:
            out.append(value)
            return bytes(out)
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _words(body: bytes, cookie: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    size = (cookie & WORD_SIZE_MASK) >> 4 & 0xE
    if size not in (2, 4, 8):
        raise _wrong(f"words of {size} bytes")
    whole = len(body) // size * size
    counts = np.frombuffer(body[:whole], dtype=f">i{size}")
    places = np.flatnonzero(counts)
    return places, counts[places].astype(np.int64)


def _wrong(what: str) -> IngestError:
    return IngestError(
        "histogram", what, "HdrHistogram's form, version 0 to 2", "copy the log again, whole"
    )
