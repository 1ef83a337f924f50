"""The checks of an audit; importing this package registers them, in the order of the table."""

from pclc.evaluation.audit.checks import (  # isort: skip  # noqa: F401 (importing them registers them)
    set_up,
    vanishing_gradients,
    finite_differences,
    mended,
    paper_arguments,
    half_the_range,
    claims_attack,
    eight_bit,
    unbounded,
    planted,
    audits_attacks,
)
