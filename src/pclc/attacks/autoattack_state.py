"""What AutoAttack has found so far, in memory and on disk, so that it can be stopped and continued."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from pclc.attacks.cost import Cost
from pclc.files import write_atomically
from pclc.hashes import tensor_hash

UNBROKEN, CLEAN = -1, 0


@dataclass(frozen=True)
class Component:
    """One attack of several.

    Attributes:
        name: of the attack, or "clean" for the images as they are.
        accuracy: what is left after it, as a share of all examples.
        seconds: how long it took.
    """

    name: str
    accuracy: float
    seconds: float


@dataclass
class Journal:
    """Which example was broken by what, filled in as attacks go on.

    Attributes:
        x_adv: (N, ...), the examples that fool; the image itself where none was found.
        broken_by: (N,) int64: number of the component, 0 for an image that is wrong anyway, -1 for none.
        components: those that are done, "clean" first.
    """

    x_adv: Tensor
    broken_by: Tensor
    components: list[Component] = field(default_factory=list)


class State:
    """A file with the journal, written whole after each component, and what it is about.

    Args:
        path: a file that ends in .safetensors, or a folder to put it into.
        about: what has to be the same to go on: attack, seed, data, model, architecture.
    """

    def __init__(self, path: str | os.PathLike[str], about: dict[str, str]) -> None:
        given = Path(path)
        self.path = given if given.suffix == ".safetensors" else given / "autoattack.safetensors"
        self.about = about

    def load(self, like: Tensor, cost: Cost) -> Journal | None:
        """The journal, on the device of `like`; None where there is none yet. Its passes are added to the cost."""
        if not self.path.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, "pt", device=str(like.device)) as content:
                notes = json.loads(content.metadata()["autoattack"])
                x_adv, broken_by = content.get_tensor("x_adv"), content.get_tensor("broken_by")
            if notes["hash"] != tensor_hash(x_adv, broken_by):
                raise ValueError("its contents are not those that were written")
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"Expected `state` to be a file that AutoAttack wrote, but got {self.path}: {error}."
            ) from error
        for name, value in self.about.items():
            if notes["about"].get(name) != value:
                raise ValueError(
                    f"Expected `state` to be from a run with the same {name} ({value}), but {self.path} is from one "
                    f"with {notes['about'].get(name)}: use another file."
                )
        cost.forwards += notes["forwards"]
        cost.backwards += notes["backwards"]
        cost.gradients += notes["gradients"]
        cost.zeros = cost.zeros.to(like.device) + notes["zeros"]
        return Journal(x_adv, broken_by, [Component(**component) for component in notes["components"]])

    def save(self, journal: Journal, cost: Cost) -> None:
        """Write the journal."""
        from safetensors.torch import save

        tensors = {"x_adv": journal.x_adv.contiguous(), "broken_by": journal.broken_by}
        notes: dict[str, Any] = {
            "about": self.about,
            "hash": tensor_hash(*tensors.values()),  # safetensors does not notice a byte that was changed
            "components": [asdict(component) for component in journal.components],
            "forwards": cost.forwards,
            "backwards": cost.backwards,
            "gradients": cost.gradients,
            "zeros": int(cost.zeros),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, save(tensors, metadata={"autoattack": json.dumps(notes)}))
