"""How a network was trained, in a few words for tables and titles."""

from typing import Any

from pclc.attacks.attack import number_text

OF_THE_PAPER = {"pc": "PC", "pc-lc": "PC-LC", "pc-lc-authors": "PC-LC as in the authors' code"}
_OTHERS = {"ce": "cross-entropy", "gce": "GCE", "cot": "COT"}


def training_words(train: dict[str, Any]) -> str:
    """The loss, or the adversarial recipe with it, and the epochs.

    Args:
        train: the training part of a run directory's configuration.

    Example:
        >>> training_words({"loss": "pc-lc", "warm_up_epochs": 50, "epochs": 50})
        'PC-LC, 100 epochs'
    """
    recipe, epochs = train.get("adversarial"), train["warm_up_epochs"] + train["epochs"]
    loss = {**_OTHERS, **OF_THE_PAPER}[train["loss"]]
    if recipe is None:
        return f"{loss}, {epochs} epochs"
    eps = recipe["eps"]
    ball = " to ".join(map(number_text, eps)) if isinstance(eps, list) else number_text(eps)
    return f"adversarial ({recipe['method']} with {loss}, eps {ball}), {epochs} epochs"
