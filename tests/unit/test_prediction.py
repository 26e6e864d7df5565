"""The counts that sound releases show: for grouped rows they follow from new divisions of whole groups."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import simulations as statistics
from drawing import often
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.statistics.binomial import beta_binomial
from gate.statistics.prediction import looked_at, predicted_counts


@pytest.mark.each_run(1)
@pytest.mark.parametrize("name", ["equal: 300 x 300, rho 0.2", "lognormal(3, 1.5), 2 K, rho 0.5"])
def test_held_out_counts_lie_where_they_are_predicted(name: str) -> None:
    """It holds 95 % of sound releases in groups, within three errors (3.4 % of 40); at 1 % rows' law holds 10 to 60."""
    runs = often(20, 40)
    grouped, plain = statistics.predict_groups(name, runs, divisions=199)
    assert min(grouped) >= 0.95 - 3 * statistics.share_error(0.05, runs)
    assert plain[1] <= 0.7


@settings(max_examples=often(4, 10), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2000, 5000), st.integers(2000, 5000))
def test_single_rows_are_predicted_by_the_beta_binomial_law(seed: int, fit_n: int, n: int) -> None:
    """The range is the same within the error of 999 divisions, about a fifth of its width at either end."""
    rng = np.random.default_rng(seed)
    pooled = rng.permutation(fit_n + n)
    at = fit_n + n - looked_at(fit_n + n)  # ranks are the scores themselves
    fit, held = (part[:, None] >= at for part in (pooled[:fit_n], pooled[fit_n:]))
    rank = 0.05 * fit_n
    ((low, high),) = predicted_counts(fit.astype(float), held.astype(float), [rank])
    exact = beta_binomial(n, rank, fit_n - rank + 1).quantiles(0.05)
    assert (low, high) == pytest.approx(exact, abs=0.2 * (exact[1] - exact[0]) + 1)
