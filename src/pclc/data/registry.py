"""The data sets, one description each; checksums and addresses are those that their authors or torchvision publish."""

from collections.abc import Mapping

from pclc.data import classes
from pclc.data.cifar import BatchReader, binary_batch, from_archive, from_files, python_batch
from pclc.data.description import Description, Download, Layout
from pclc.data.digits import TEST_SIZE, read_digits
from pclc.data.idx import read_idx_pair
from pclc.data.svhn import read_svhn
from pclc.data.tiny_imagenet import FOLDER, read_tiny_imagenet
from pclc.hints import did_you_mean

_IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _like_mnist(
    name: str, folder: str, class_names: tuple[str, ...], md5: Mapping[str, str], servers: tuple[str, ...]
) -> Description:
    """Describe four IDX files in ``folder``, plain (read first, being faster) or gzipped (what servers have)."""
    raw = f"{folder}/raw"
    return Description(
        name=name,
        shape=(1, 28, 28),
        num_classes=10,
        classes=class_names,
        counts={"train": 60_000, "test": 10_000},
        layouts=(
            Layout(
                parts={
                    split: tuple((f"{raw}/{file}", f"{raw}/{file}.gz") for file in files)
                    for split, files in _IDX_FILES.items()
                },
                read=read_idx_pair,
                md5={f"{raw}/{file}": checksum for file, checksum in md5.items()},
            ),
        ),
        downloads=tuple(
            Download(f"{raw}/{file}.gz", md5[f"{file}.gz"], tuple(f"{server}/{file}.gz" for server in servers))
            for files in _IDX_FILES.values()
            for file in files
        ),
    )


def _cifar_archive(
    archive: str, folder: str, files: Mapping[str, tuple[str, ...]], read: BatchReader, md5: Mapping[str, str]
) -> tuple[Layout, Layout]:
    """Describe a version of CIFAR twice: unpacked, and still in its archive."""
    members = {split: tuple(f"{folder}/{file}" for file in names) for split, names in files.items()}
    unpacked = Layout(
        parts={split: tuple((name,) for name in names) for split, names in members.items()},
        read=from_files(read),
        md5={f"{folder}/{file}": checksum for file, checksum in md5.items() if file != archive},
    )
    packed = Layout(
        parts=dict.fromkeys(members, ((archive,),)),
        read=from_archive(members, read),
        md5={archive: md5[archive]},
    )
    return unpacked, packed


def _cifar(
    name: str, class_names: tuple[str, ...], binary: tuple[Layout, Layout], python: tuple[Layout, Layout]
) -> Description:
    """Describe both versions; the binary one comes first and is fetched, because it holds no pickles."""
    ((archive, checksum),) = binary[1].md5.items()
    return Description(
        name=name,
        shape=(3, 32, 32),
        num_classes=len(class_names),
        classes=class_names,
        counts={"train": 50_000, "test": 10_000},
        layouts=(binary[0], python[0], binary[1], python[1]),
        downloads=(
            Download(
                archive,
                checksum,
                (f"https://www.cs.toronto.edu/~kriz/{archive}", f"https://cave.cs.toronto.edu/kriz/{archive}"),
            ),
        ),
    )


_DIGITS = Description(
    name="digits",
    shape=(1, 8, 8),
    num_classes=10,
    classes=classes.DIGITS,
    counts={"train": 1797 - TEST_SIZE, "test": TEST_SIZE},
    layouts=(Layout(parts={"train": (), "test": ()}, read=read_digits),),
)
_MNIST = _like_mnist(
    "mnist",
    "MNIST",
    classes.DIGITS,
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
)
_KMNIST = _like_mnist(
    "kmnist",
    "KMNIST",
    classes.KMNIST,
    {
        "train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
        "train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
        "t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
        "t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
    },
    ("https://codh.rois.ac.jp/kmnist/dataset/kmnist", "http://codh.rois.ac.jp/kmnist/dataset/kmnist"),
)
_FASHION_MNIST = _like_mnist(
    "fashion-mnist",
    "FashionMNIST",
    classes.FASHION_MNIST,
    {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
)
_CIFAR10 = _cifar(
    "cifar10",
    classes.CIFAR10,
    _cifar_archive(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
        binary_batch(label_bytes=1),
        {
            "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
    ),
    _cifar_archive(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
        python_batch("labels"),
        {
            "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
)
_CIFAR100 = _cifar(
    "cifar100",
    classes.CIFAR100,
    _cifar_archive(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        {"train": ("train.bin",), "test": ("test.bin",)},
        binary_batch(label_bytes=2),
        {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    ),
    _cifar_archive(
        "cifar-100-python.tar.gz",
        "cifar-100-python",
        {"train": ("train",), "test": ("test",)},
        python_batch("fine_labels"),
        {
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
)
_SVHN_MD5 = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}
_SVHN_FOLDERS = ("", "SVHN/", "svhn/")
_SVHN = Description(
    name="svhn",
    shape=(3, 32, 32),
    num_classes=10,
    classes=classes.DIGITS,
    counts={"train": 73_257, "test": 26_032},
    layouts=(
        Layout(
            parts={split: (tuple(f"{folder}{split}_32x32.mat" for folder in _SVHN_FOLDERS),) for split in _SVHN_MD5},
            read=read_svhn,
            md5={
                f"{folder}{split}_32x32.mat": checksum
                for split, checksum in _SVHN_MD5.items()
                for folder in _SVHN_FOLDERS
            },
        ),
    ),
    downloads=tuple(
        Download(f"{split}_32x32.mat", checksum, (f"http://ufldl.stanford.edu/housenumbers/{split}_32x32.mat",))
        for split, checksum in _SVHN_MD5.items()
    ),
)
_TINY_ZIP = f"{FOLDER}.zip"
_TINY_ZIP_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
_TINY_IMAGENET = Description(
    name="tiny-imagenet",
    shape=(3, 64, 64),
    num_classes=200,
    classes=(),
    counts={"train": 100_000, "test": 10_000},
    layouts=(
        # The zip first: its list of files is read much faster than a folder of 100,000 images.
        Layout(
            parts={"train": ((_TINY_ZIP,),), "test": ((_TINY_ZIP,),)},
            read=read_tiny_imagenet,
            md5={_TINY_ZIP: _TINY_ZIP_MD5},
        ),
        Layout(
            parts={"train": ((f"{FOLDER}/wnids.txt",),), "test": ((f"{FOLDER}/wnids.txt",),)},
            read=read_tiny_imagenet,
        ),
    ),
    downloads=(
        Download(
            _TINY_ZIP,
            _TINY_ZIP_MD5,
            (f"http://cs231n.stanford.edu/{_TINY_ZIP}", f"https://image-net.org/data/{_TINY_ZIP}"),
        ),
    ),
)

_DESCRIPTIONS = {
    description.name: description
    for description in (_DIGITS, _MNIST, _KMNIST, _FASHION_MNIST, _CIFAR10, _CIFAR100, _SVHN, _TINY_IMAGENET)
}


def dataset_names() -> tuple[str, ...]:
    """Return the names of the data sets that can be loaded.

    >>> dataset_names()[:3]
    ('digits', 'mnist', 'kmnist')
    """
    return tuple(_DESCRIPTIONS)


def describe(name: str) -> Description:
    """Return the description of a data set."""
    if name not in _DESCRIPTIONS:
        known, hint = ", ".join(_DESCRIPTIONS), did_you_mean(name.lower(), _DESCRIPTIONS)
        raise ValueError(
            f"Expected the data set to be one of {known}, but got {name!r}.{hint} "
            "For your own images use Python: pclc.train (with a pclc.Dataset), pclc.evaluate and pclc.audit."
        )
    return _DESCRIPTIONS[name]
