"""The benchmark of sweeps with many trials: its statistics, and that it runs."""

from unittest.mock import patch

import pytest

from benchmarks import scale


@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.soak
def test_scale_is_measured() -> None:
    table = scale.measure(marks=(3, 5), rounds=1)
    rows = ("TPE: 5 trials", "random: 5 trials", "calls of MLflow's client", "report, with",
            "MLflow's server: all 1,000 runs")  # fmt: skip
    for row in rows:
        assert f"| {row}" in table
    assert table.count("| up to trial 5 |") == 2


def test_growth_is_the_median_of_the_rounds() -> None:
    """Trials take 1, 2 and 4 s; in the other rounds the machine is half as fast."""

    def growth(slow: float, mebibytes: int) -> scale.Growth:
        ends = [slow * moment for moment in (0.0, 1.0, 3.0, 7.0)]
        resident = [mebibytes * 2**20 * n for n in (1, 1, 2, 4)]
        return scale.Growth(ends, [end / 10 for end in ends], [slow / 10] * 4, resident)

    with patch.object(scale, "WINDOW", 1):
        rows = scale.growth_rows([growth(1, 1), growth(2, 1), growth(2, 2)], (2, 3, 4))
    assert [row[1:] for row in rows] == [
        ("2.000", "10", "200.0", "1"),
        ("4.000", "20", "400.0", "2"),
        ("8.000", "40", "800.0", "4"),
        (*["4.00 (4.00 to 4.00)"] * 3, "2048 (2048 to 4096)"),
    ]
