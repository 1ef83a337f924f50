"""Attacks by name: one decorator, one listing."""

from collections.abc import Callable
from typing import TypeVar

from pclc.attacks.attack import Attack
from pclc.hints import did_you_mean

_ATTACKS: dict[str, type[Attack]] = {}

A = TypeVar("A", bound=Attack)


def register_attack(name: str) -> Callable[[type[A]], type[A]]:
    """Decorate an attack's class, and `parse_attack("name(...)")` finds it."""
    if not name.isidentifier() or name != name.lower():
        raise ValueError(f"Expected `name` to be one word in lower case, but got {name!r}.")
    if name in _ATTACKS:
        raise ValueError(f"Expected `name` to be new, but an attack {name!r} is registered already.")

    def register(attack: type[A]) -> type[A]:
        attack.name = name
        _ATTACKS[name] = attack
        return attack

    return register


def attack_names() -> tuple[str, ...]:
    """Return the names of the registered attacks, sorted.

    Example:
        >>> "pgd" in attack_names()
        True
    """
    return tuple(sorted(_ATTACKS))


def find_attack(name: str) -> type[Attack]:
    """Return the class of a registered name, or of the class's own name, in any case."""
    known = {attack.__name__.lower(): attack for attack in _ATTACKS.values()} | _ATTACKS
    if name.lower() not in known:
        hint = did_you_mean(name.lower(), known)
        raise ValueError(f"Expected an attack among {', '.join(attack_names())}, but got {name!r}.{hint}")
    return known[name.lower()]
