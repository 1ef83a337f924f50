"""Attacks as text, `pgd(eps=8/255, alpha=2/255, steps=40)`: for the command line and for result files."""

import ast
import dataclasses
from typing import Any

from pclc.attacks.attack import Attack
from pclc.attacks.registry import find_attack
from pclc.hints import did_you_mean

_EXAMPLE = "pgd(eps=8/255, alpha=2/255, steps=40)"


def parse_attack(text: str) -> Attack:
    """Make the attack that a text describes, without evaluating any of it.

    The text is a name (`attack_names()`) and its arguments, each by name: numbers, fractions a/b, strings in quotes,
    True and False. An attack that is made of another one takes that first: `eot(pgd(...), draws=20)`; one
    of several takes `attacks=(pgd(...), noise(...))`. `str(attack)` gives the text back.

    Example:
        >>> attack = parse_attack("pgd(eps=8/255, alpha=2/255, steps=40)")
        >>> attack.steps, attack.norm
        (40, 'Linf')
        >>> print(attack)
        pgd(eps=8/255, alpha=2/255, steps=40)
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"Expected an attack such as {_EXAMPLE}, but got {text!r}: {error}.") from error
    return _attack(call, text)


def _attack(call: ast.expr, text: str) -> Attack:
    if isinstance(call, ast.Name):  # without arguments: what is missing, or misspelt, is said below
        call = ast.Call(call, [], [])
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"Expected an attack such as {_EXAMPLE}, but got {text!r}.")
    if call.func.id.lower() == "transfer":
        raise ValueError(
            "A transfer attack needs its substitute model, which text cannot hold: "
            "use pclc.attacks.Transfer(attack, substitute)."
        )
    attack = find_attack(call.func.id)
    settings = {field.name: field for field in dataclasses.fields(attack) if field.init}
    inner = [ast.keyword("attack", call.args[0])] if "attack" in settings and len(call.args) == 1 else []
    if len(call.args) > len(inner) or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(f"Expected every argument of `{attack.name}` by name, such as eps=8/255, but got {text!r}.")
    arguments: dict[str, Any] = {}
    for keyword in [*inner, *call.keywords]:
        assert keyword.arg is not None
        if keyword.arg not in settings:
            hint = did_you_mean(keyword.arg, settings)
            raise ValueError(
                f"Expected the arguments of `{attack.name}` among {', '.join(settings)}, but got {keyword.arg!r}.{hint}"
            )
        if keyword.arg in arguments:
            raise ValueError(f"Expected `{keyword.arg}` once, but got {text!r}.")
        arguments[keyword.arg] = _argument(keyword.value, keyword.arg, text)
    missing = [
        name for name, field in settings.items() if field.default is dataclasses.MISSING and name not in arguments
    ]
    if missing:
        raise ValueError(
            f"Expected `{attack.name}` to have {' and '.join(f'`{name}`' for name in missing)}, but got {text!r}."
        )
    return attack(**arguments)


def _argument(node: ast.expr, name: str, text: str) -> Any:
    """An attack, several in brackets, or a plain value, as the name of the argument says."""
    if name == "attack":
        return _attack(node, text)
    if name == "attacks" and isinstance(node, ast.Tuple):
        return tuple(_attack(part, text) for part in node.elts)
    return _value(node, name)


def _value(node: ast.expr, name: str) -> bool | int | float | str:
    """A literal, a negative number, or a fraction of two numbers."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(
            left=ast.Constant(value=int() | float() as top),
            op=ast.Div(),
            right=ast.Constant(value=int() | float() as bottom),
        ) if bottom != 0:
            return top / bottom
    raise ValueError(
        f"Expected `{name}` to be a number, a fraction a/b, a string in quotes, True or False, "
        f"but got {ast.unparse(node)}."
    )
