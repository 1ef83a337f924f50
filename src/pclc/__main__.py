"""``python -m pclc``, which is also what `torchrun -m pclc` needs."""

from pclc.cli import main

main()
