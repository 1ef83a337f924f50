"""Each check of a claim, on figures made for it."""

from pclc.analysis.claims import (
    above,
    falls_with_eps,
    gains_more,
    iterative_stronger,
    limited,
    rises_with_eps,
    transfer_weaker,
)

T = "table1"


def figures(**rows: dict[str, float]) -> dict[tuple[str, str, str, str], float]:
    """Figures of one data set, by column."""
    return {
        (T, "mnist", column.replace("_", "-"), row): value
        for column, values in rows.items()
        for row, value in values.items()
    }


def test_above() -> None:
    made = figures(pc_lc={"pgd 0.1": 5.0, "pgd 0.2": 3.0, "cw": 1.0}, ce={"pgd 0.1": 4.0, "pgd 0.2": 3.0, "fgsm": 9.0})
    finding = above(made, experiment=T, column="pc-lc", than="ce")
    assert (finding.held, finding.of, finding.holds) == (
        1,
        2,
        False,
    )  # equal is not above
    assert finding.exceptions == ("mnist pgd 0.2: pc-lc 3.0, ce 3.0",)
    assert above(made, experiment=T, column="pc-lc", than="ce", share=0.5).holds is True
    assert above(made, experiment=T, column="pc-lc", than="ce", rows=["* 0.1"]).holds is True
    assert above(made, experiment=T, column="pc-lc", than="ce", datasets=["svhn"]).holds is None
    assert above(made, experiment=T, column="ce", than="pc-lc", within=1.0).holds is True
    assert above(made, experiment=T, column="ce", than="pc-lc", within=0.9).holds is False


def test_gains_more() -> None:
    made = figures(pc_lc={"pgd 0.1": 9.0, "fgsm 0.1": 9.0}, ce={"pgd 0.1": 4.0, "fgsm 0.1": 5.0})
    arguments = {"experiment": T, "column": "pc-lc", "than": "ce"}
    assert gains_more(made, **arguments, rows=["pgd *"], less_rows=["fgsm *"]).holds is True
    finding = gains_more(made, **arguments, rows=["fgsm *"], less_rows=["pgd *"])
    assert (finding.holds, finding.exceptions) == (False, ("mnist: mean gain 4 and 5",))
    assert gains_more(made, **arguments, rows=["cw"], less_rows=["pgd *"]).holds is None
    losses = figures(pc_lc={"pgd 0.1": 3.0, "fgsm 0.1": 3.0}, ce={"pgd 0.1": 4.0, "fgsm 0.1": 5.0})
    smaller = gains_more(losses, **arguments, rows=["pgd *"], less_rows=["fgsm *"])
    assert (smaller.holds, smaller.exceptions) == (False, ("mnist: mean gain -1 and -2",)), "a smaller loss is no gain"


def test_gains_more_on_each_data_set_or_on_one_than_on_another() -> None:
    gains = {("mnist", "pgd"): 9.0, ("mnist", "fgsm"): 1.0, ("cifar10", "pgd"): 2.0, ("cifar10", "fgsm"): 3.0}
    made = {(T, dataset, "pc-lc", f"{attack} 0.1"): 50 + gain for (dataset, attack), gain in gains.items()}
    made |= {(T, dataset, "ce", f"{attack} 0.1"): 50.0 for dataset, attack in gains}
    arguments = {"experiment": T, "column": "pc-lc", "than": "ce"}
    each = gains_more(made, **arguments, rows=["pgd *"], less_rows=["fgsm *"])
    assert (each.held, each.of, each.exceptions) == (1, 2, ("cifar10: mean gain 2 and 3",))
    one = gains_more(made, **arguments, datasets=["cifar10"], less_datasets=["*mnist"])
    assert (one.held, one.of, one.exceptions) == (0, 1, ("mean gain 2.5 and 5",))


def test_limits() -> None:
    made = figures(ce={"a": 5.0, "b": 6.0})
    assert limited(made, experiment=T, column="ce", least=5.0).holds is True
    assert limited(made, experiment=T, column="ce", least=5.5).held == 1
    assert limited(made, experiment=T, column="ce", most=6.0).holds is True
    assert limited(made, experiment=T, column="ce", most=5.5).exceptions == ("mnist b: 6.0",)


def test_iterative_attacks() -> None:
    made = figures(ce={"fgsm 0.1": 5.0, "pgd 0.1": 5.0, "mim 0.1": 6.0, "fgsm 0.2": 1.0, "pgd 0.3": 9.0})
    finding = iterative_stronger(made, experiment=T, column="ce")
    assert (finding.held, finding.of) == (1, 2)  # only equal eps are compared, and equal accuracy is not weaker
    assert finding.exceptions == ("mnist fgsm 0.1: 5.0, mim 6.0",)


def test_transfer() -> None:
    made = {
        ("black", "mnist", "ce", "pgd 0.1"): 5.0,
        ("black", "mnist", "ce", "mim 0.1"): 5.0,
        (T, "mnist", "ce", "pgd 0.1"): 4.0,
        (T, "mnist", "ce", "mim 0.1"): 6.0,
    }
    attacks = ["pgd", "mim"]
    finding = transfer_weaker(made, experiment="black", white_box=T, column="ce", attacks=attacks)
    assert (finding.held, finding.of, finding.exceptions) == (1, 2, ("mnist mim 0.1: 5.0, mim 6.0",))


def test_growing_eps() -> None:
    made = figures(ce={"pgd 0.1": 5.0, "pgd 0.12": 5.0, "pgd 0.3": 1.0, "mim 0.1": 1.0, "mim 1.0": 2.0})
    falls = falls_with_eps(made, experiment=T, column="ce", attacks=["pgd", "mim"])
    assert (falls.held, falls.of, falls.exceptions) == (2, 3, ("mnist mim 0.1 to 1.0: 1.0 to 2.0",))
    assert rises_with_eps(made, experiment=T, column="ce", rows="mim *").holds is True
    assert rises_with_eps(made, experiment=T, column="ce", rows="pgd *").holds is False
    assert rises_with_eps(made, experiment=T, column="ce", rows="cw *").holds is None
