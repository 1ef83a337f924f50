"""Clean accuracy over seeds: every model counts once."""

import pclc
from pclc.bench.accuracy import bench_accuracy
from pclc.training import paper_config


def test_two_names_of_one_precision_are_one_row_of_its_seeds() -> None:
    config = paper_config("digits", loss="ce", warm_up_epochs=0, epochs=1)
    executions = [pclc.Execution(device="cpu", precision=name) for name in ("fp32", "auto")]
    found = bench_accuracy(pclc.load_dataset("digits"), pclc.load_dataset("digits", "test"), [config], executions)
    assert [(row["precision"], row["seeds"]) for row in found.rows] == [("fp32", 1)]
