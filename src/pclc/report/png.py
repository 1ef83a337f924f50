"""Images inside the page, without an image library."""

import base64
import struct
import zlib

_LEAST = 96  # smaller images are enlarged pixel by pixel, because printers would blur them


def data_uri(pixels: bytes, channels: int, height: int, width: int) -> str:
    """Bytes (C, H, W), one or three channels, as a PNG in a `data:` address.

    Example:
        >>> data_uri(bytes([0, 255]), 1, 1, 2)[:36]
        'data:image/png;base64,iVBORw0KGgoAAA'
    """
    if channels not in (1, 3) or len(pixels) != channels * height * width:
        raise ValueError(
            f"Expected `pixels` to be {channels} x {height} x {width} bytes with 1 or 3 channels, "
            f"but got {len(pixels)} of {channels}."
        )
    size = height * width
    times = max(1, _LEAST // max(height, width))
    rows = bytearray()
    for i in range(height):
        # From planes to interleaved pixels; a row begins with its filter, none.
        row = (pixels[c * size + i * width + j] for j in range(width) for _ in range(times) for c in range(channels))
        rows += (b"\0" + bytes(row)) * times
    header = struct.pack(">IIBBBBB", times * width, times * height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(bytes(rows), 9)), _chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
