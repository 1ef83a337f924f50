"""Small files in the official formats, written from the formats' descriptions and not with the code under test."""

import gzip
import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np

WNIDS = [f"n{i:08d}" for i in range(200)]


def random_images(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(root, images, labels, folder="MNIST", prefix="train", zipped=True):
    raw = Path(root) / folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", np.asarray(labels, np.uint8))):
        content = idx_bytes(array)
        name = f"{prefix}-{kind}-ubyte"
        if zipped:
            (raw / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (raw / name).write_bytes(content)
    return raw


def cifar10_files(images, labels):
    """Return the contents of the six files of the binary version, the test batch like the first one."""
    rows = [bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)]
    per_batch = len(rows) // 5
    files = {f"data_batch_{i + 1}.bin": b"".join(rows[i * per_batch : (i + 1) * per_batch]) for i in range(5)}
    files["test_batch.bin"] = b"".join(rows[:per_batch])
    return files


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def python_batch_bytes(images, labels, key=b"labels", protocol=2):
    return pickle.dumps({b"data": images.reshape(len(images), -1), key: list(labels)}, protocol=protocol)


def python2_batch_bytes(images, labels):
    """Write the pickle that Python 2 and numpy 1 wrote, opcode by opcode: text is bytes, modules are numpy.core."""

    def string(value):
        return b"T" + struct.pack("<I", len(value)) + value

    n, pixels = images.reshape(len(images), -1).shape
    dtype = (
        b"cnumpy\ndtype\n"
        + string(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + string(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
        b"(K\x01"
        + b"J"
        + struct.pack("<i", n)
        + b"J"
        + struct.pack("<i", pixels)
        + b"\x86"
        + dtype
        + b"\x89"
        + string(images.tobytes())
        + b"tb"
    )
    items = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + items + b"u."


def jpeg_bytes(value, size=(64, 64), mode="RGB"):
    from PIL import Image

    stream = io.BytesIO()
    Image.new(mode, size, value if mode == "L" else (value, 255 - value, 128)).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def tiny_imagenet_files(per_class=1, val=4):
    """Return the content of each file below ``tiny-imagenet-200``; each image has one colour, told by its class."""
    files = {"wnids.txt": "\n".join(reversed(WNIDS)).encode()}
    for label, wnid in enumerate(WNIDS):
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b""
        for i in range(per_class):
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg_bytes(label, mode="L" if label == 7 else "RGB")
    lines = []
    for i in range(val):
        label = (50 * i + 3) % 200
        files[f"val/images/val_{i}.JPEG"] = jpeg_bytes(label)
        lines.append(f"val_{i}.JPEG\t{WNIDS[label]}\t0\t0\t63\t63")
    files["val/val_annotations.txt"] = "\n".join(lines).encode()
    return files


def write_tiny_folder(root, files):
    for name, content in files.items():
        path = root / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_tiny_zip(root, files):
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
