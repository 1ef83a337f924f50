"""What evaluations and audits keep on disk while they run: files named by a hash of all that decides them."""

import json
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pclc.evaluation.budget import from_bytes
from pclc.files import write_atomically
from pclc.hashes import settings_hash, tensor_hash

FOLDER = "evaluation"


@dataclass(frozen=True, eq=False)
class Part:
    """One attack on one chunk.

    Attributes:
        fooled: (n,) flags that count, on the CPU like all the rest.
        linf, l2: (n,) float64.
        x_adv: (n, ...) or None; uint8 where rounded to bytes.
        warnings: what the attack warned of, each with the name of its class; told again whenever the part is used.
    """

    fooled: Tensor
    linf: Tensor
    l2: Tensor
    x_adv: Tensor | None
    forwards: int | None
    backwards: int | None
    seconds: float
    outside: int
    carried: int
    zero_gradient_share: float | None
    warnings: tuple[tuple[str, str], ...] = ()

    def as_images(self) -> Tensor:
        """The adversarial examples as float."""
        assert self.x_adv is not None
        return from_bytes(self.x_adv)


_NUMBERS = ("forwards", "backwards", "seconds", "outside", "carried", "zero_gradient_share", "warnings")


class State:
    """The parts found so far, in a folder of `out`; without one nothing is kept."""

    def __init__(self, out: Path | None, name: str = FOLDER) -> None:
        self.folder = out / name if out else None
        self.used: set[Path] = set()
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)

    def announce(self, about: dict[str, Any]) -> list[str]:
        """Note what this evaluation is of, and say so where the folder holds results of something else, which stay."""
        if not self.folder:
            return []
        file = self.folder / "about.json"
        before = _read_json(file)
        different = [name for name, value in about.items() if before and before.get(name) != value]
        if before != about:
            write_atomically(file, (json.dumps(about, indent=1) + "\n").encode())
        if not different:
            return []
        changes = ", ".join(f"{name} {before.get(name)!r} -> {about[name]!r}" for name in different)
        return [f"{self.folder} holds results of another evaluation ({changes}); what differs is computed again."]

    def load(self, identity: dict[str, Any] | None, with_examples: bool) -> Part | None:
        """The part of that identity; None where it has to be computed."""
        found = self.load_tensors(identity)
        if found is None:
            return None
        tensors, numbers = found
        if with_examples and "x_adv" not in tensors:
            return None
        x_adv = tensors.get("x_adv") if with_examples else None
        return Part(tensors["fooled"].bool(), tensors["linf"], tensors["l2"], x_adv, **numbers)

    def load_tensors(self, identity: dict[str, Any] | None) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and numbers of that identity; None where they have to be computed."""
        file = self._file(identity)
        if file is None or not file.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, "pt") as content:
                numbers = json.loads(content.metadata()["part"])
                tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
                if content.metadata()["hash"] != _hash(tensors, numbers):
                    raise ValueError("its contents have changed since they were written")
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            warnings.warn(f"{file} cannot be read and is computed again: {error}.", stacklevel=2)
            return None
        return tensors, numbers

    def save(self, identity: dict[str, Any] | None, part: Part) -> None:
        """Keep a part."""
        tensors = {"fooled": part.fooled.to(torch.uint8), "linf": part.linf, "l2": part.l2}
        if part.x_adv is not None:
            tensors["x_adv"] = part.x_adv.contiguous()
        self.save_tensors(identity, tensors, {name: getattr(part, name) for name in _NUMBERS})

    def save_tensors(
        self, identity: dict[str, Any] | None, tensors: dict[str, Tensor], numbers: dict[str, Any]
    ) -> None:
        """Keep tensors, which live on the CPU, and numbers."""
        file = self._file(identity)
        if file is None:
            return
        from safetensors.torch import save

        content = save(tensors, metadata={"part": json.dumps(numbers), "hash": _hash(tensors, numbers)})
        file.parent.mkdir(parents=True, exist_ok=True)  # another audit that ended in this folder may have removed it
        write_atomically(file, content)

    def clear(self) -> None:
        """Remove the files that were asked for or kept here: what they led to stands elsewhere."""
        for file in self.used:
            file.unlink(missing_ok=True)
        if self.folder:
            with suppress(OSError):  # others keep something there, or have removed it
                self.folder.rmdir()

    def _file(self, identity: dict[str, Any] | None) -> Path | None:
        if self.folder is None or identity is None:
            return None
        file = self.folder / f"{settings_hash(identity)}.safetensors"
        self.used.add(file)
        return file


def _hash(tensors: dict[str, Tensor], numbers: dict[str, Any]) -> str:
    """Of all that a file holds: safetensors notices a file that is too short, but no byte that was changed."""
    return settings_hash([numbers, {name: tensor_hash(tensor) for name, tensor in tensors.items()}])


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
