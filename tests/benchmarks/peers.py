"""Every rival on the same rows: what a threshold that stands for a false-positive rate really flags.

    python tests/benchmarks/peers.py [FILE ...] [--fits 10] [--rows 100000] [--fresh 1000000]

Each rival is fitted on benign scores (and malicious ones where it needs them) of a detector, asked for the threshold or
score that stands for FPR 10 %, 1 %, 0.1 % and 0.01 %, and counted on fresh benign rows. Then the detector is retrained,
which moves every score; the rival is fitted again, and the numbers that its users have written down stay as they are.
Three settings: simulated smooth scores, simulated tied scores of a boosted tree, and real files with a label column
(0 is benign) and columns of scores between 0 and 1. There every column in turn is the first release and the next one
its retraining, and half of the rows are fresh. Prints Markdown. Rivals that are not installed are named with the
command that installs them.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, expit
from scipy.stats import binom, norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV

ROOT = Path(__file__).parents[2]
RATES = np.array([0.1, 0.01, 0.001, 0.0001])
PERCENTS = ("10 %", "1 %", "0.1 %", "0.01 %")
CONTRACT = np.array([0.1, 0.3, 0.5, 0.7])  # the calibrated scores of the four rates
DELTA = 0.05  # how often a bound by design may be broken
TIMED_ROWS = 100_000
INSTALL = (
    "pip install -r tests/benchmarks/peers-requirements.txt && "
    "pip install --no-deps --ignore-requires-python -r tests/benchmarks/peers-no-deps.txt"
)

Floats = NDArray[np.float64]


# --- what is compared ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Scores that a rival may be fitted on: a column for the detector, and one for a second one beside it."""

    benign: Floats
    malicious: Floats

    @property
    def scores(self) -> Floats:
        return self.benign[:, 0]

    @property
    def labelled(self) -> tuple[Floats, NDArray[np.int64]]:
        scores = np.concatenate([self.scores, self.malicious[:, 0]])
        return scores, np.repeat([0, 1], [len(self.benign), len(self.malicious)])


@dataclass(frozen=True)
class Fitted:
    """A rival after its fit: a row is flagged at a rate where its value reaches that rate's level."""

    values: Callable[[Floats], Floats]
    levels: Floats
    artifact: int  # bytes that production needs


@dataclass(frozen=True)
class Rival:
    """`keeps`: its users keep the first release's levels. `whole`: a row's value depends on more than its score."""

    name: str
    fit: Callable[[Sample], Fitted]
    needs: str
    better: str
    lacks: str
    package: str | None = None
    keeps: bool = True
    whole: bool = False
    timed_rows: int = TIMED_ROWS

    @property
    def version(self) -> str | None:
        """Return the installed version, None if it is missing or too old; a published formula has its own version."""
        if self.package is None:
            return "formula"
        if self.package == "scikit-learn" and find_spec("sklearn.frozen") is None:  # before 1.6
            return None
        try:
            return f"{self.package} {version(self.package)}"
        except PackageNotFoundError:
            return None


def pickled(model: object) -> int:
    file = io.BytesIO()
    joblib.dump(model, file)
    return file.tell()


def identity(scores: Floats) -> Floats:
    return scores


def thresholds(levels: Floats) -> Fitted:
    """A rival that gives one cut-off on raw scores for each rate, and nothing else."""
    return Fitted(identity, levels, levels.nbytes)


def picked(sample: Sample, values: Callable[[Floats], Floats], artifact: int) -> Fitted:
    """A rival that promises no false-positive rate: its users pick the value that has the rate on the fit rows."""
    ordered = np.sort(sample.scores)
    ranks = np.maximum(1, np.floor(RATES * len(ordered))).astype(int)
    return Fitted(values, values(ordered[len(ordered) - ranks]), artifact)


# --- the rivals ---------------------------------------------------------------------------------------------


def fit_gate(sample: Sample, policy: str) -> Fitted:
    """Load the pipeline in `calibrator.joblib`, as production does."""
    import gate

    artifact = gate.fit(sample.scores, policy=ROOT / "policies" / f"{policy}.yaml").artifact
    pipeline = joblib.load(io.BytesIO(artifact))
    return Fitted(lambda scores: pipeline.predict(scores.reshape(-1, 1)), CONTRACT, len(artifact))


def fit_fprcal(sample: Sample) -> Fitted:
    """The paper's own package."""
    from fprcal import fit_calibration_pipeline

    pipeline = fit_calibration_pipeline(sample.scores)
    return Fitted(lambda scores: pipeline.predict(scores.reshape(-1, 1)), CONTRACT, pickled(pipeline))


def fit_raw(sample: Sample) -> Fitted:
    return picked(sample, identity, 8 * len(RATES))


def fit_sklearn(sample: Sample, method: str) -> Fitted:
    """Platt 2000 and Zadrozny and Elkan 2002, by scikit-learn, around a detector that is already trained."""
    scores, labels = sample.labelled
    rows = scores.reshape(-1, 1)
    from sklearn.frozen import FrozenEstimator

    model = CalibratedClassifierCV(FrozenEstimator(ScoreClassifier().fit(rows, labels)), method=method)
    model.fit(rows, labels)
    return picked(sample, lambda rows: model.predict_proba(rows.reshape(-1, 1))[:, 1], pickled(model))


class ScoreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A trained classifier whose only feature is its own score."""

    def fit(self, X: Floats, y: NDArray[np.int64]) -> ScoreClassifier:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Floats) -> Floats:
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X: Floats) -> NDArray[np.int64]:
        return (X[:, 0] >= 0.5).astype(np.int64)


def fit_beta(sample: Sample) -> Fitted:
    """Kull, Silva Filho and Flach 2017."""
    from betacal import BetaCalibration

    with warnings.catch_warnings():  # the package switches all warnings off, for everyone
        model = BetaCalibration("abm").fit(*sample.labelled)
    return picked(sample, model.predict, pickled(model))


def fit_kriegel(sample: Sample) -> Fitted:
    """Kriegel et al. 2011, Gaussian scaling: 1 - value is the probability of so large a score."""
    from pyod.models.base import BaseDetector

    class ScoreDetector(BaseDetector):  # type: ignore[misc]
        """A detector whose outlier score is the score it is given."""

        def __init__(self, contamination: float = 0.1) -> None:
            super().__init__(contamination=contamination)

        def fit(self, X: Floats, y: object = None) -> ScoreDetector:
            self._set_n_classes(y)
            self.decision_scores_ = self.decision_function(X)
            self._process_decision_scores()
            return self

        def decision_function(self, X: Floats) -> Floats:
            return np.asarray(X).ravel()

    detector = ScoreDetector().fit(sample.scores.reshape(-1, 1))

    def unify(scores: Floats) -> Floats:
        return np.asarray(detector.predict_proba(scores.reshape(-1, 1), method="unify")[:, 1])

    return Fitted(unify, 1 - RATES, pickled(vars(detector)))


def fit_merlion(sample: Sample) -> Fitted:
    """Bhatnagar et al. 2023: absolute scores become |z| of a standard normal, so z stands for both its tails."""
    from merlion.post_process.calibrate import AnomScoreCalibrator
    from merlion.utils import TimeSeries, UnivariateTimeSeries

    rule = AnomScoreCalibrator(max_score=1.0)

    def calibrate(scores: Floats, call: Callable[[Any], Any] = rule) -> Floats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas has a word with Merlion's developers
            series = TimeSeries([UnivariateTimeSeries(np.arange(len(scores)), scores, "score")])
            return np.asarray(call(series).to_pd().to_numpy()[:, 0])

    calibrate(sample.scores, rule.train)
    return Fitted(calibrate, norm.isf(RATES / 2), pickled(rule))


def fit_umbrella(sample: Sample) -> Fitted:
    """Tong, Feng and Li 2018: flag above the k-th smallest of n, the first k with P(Bin(n, 1 - p) >= k) <= delta."""
    ordered = np.sort(sample.scores)
    n = len(ordered)
    levels = np.full(len(RATES), np.inf)
    for i, rate in enumerate(RATES):
        smallest = int(binom.isf(DELTA, n, 1 - rate)) + 1
        if smallest <= n:
            levels[i] = np.nextafter(ordered[smallest - 1], np.inf)
    return thresholds(levels)


def fit_learn_then_test(sample: Sample, correction: str) -> Fitted:
    """Angelopoulos et al. 2025, with 100 candidates (the package's number) at log-spaced ranks of the fit rows.

    Its own candidates, evenly spaced scores, have nothing to offer below 1 %. Candidates should not come from the rows
    that test them: this favours the rival a little.
    """
    from mapie.risk_control import BinaryClassificationController

    scores, labels = sample.labelled
    ordered = np.sort(sample.scores)
    ranks = np.unique(np.geomspace(1, len(ordered) / 2, 100).astype(int))
    candidates = np.unique(ordered[len(ordered) - ranks])
    levels = np.full(len(RATES), np.inf)
    for i, rate in enumerate(RATES):
        controller = BinaryClassificationController(
            lambda rows: np.column_stack([1 - rows, rows]),
            "fpr",
            target_level=float(rate),
            confidence_level=1 - DELTA,
            list_predict_params=candidates,
            fwer_method=correction,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # if no candidate is proven, a rate of 0 shows it
            controller.calibrate(scores, labels)
        if controller.best_predict_param is not None:
            levels[i] = controller.best_predict_param
    return thresholds(levels)


def fit_conformal(sample: Sample) -> Fitted:
    """Bates et al. 2023, Laxhammar and Falkman 2015: p = (1 + fit rows at or above) / (n + 1), flag p <= rate."""
    from crepes import ConformalClassifier

    model = ConformalClassifier().fit(sample.scores)
    return Fitted(lambda scores: -model.predict_p(scores, smoothing=False), -RATES, pickled(model))


def fit_cfar(sample: Sample, cells: int = 32, guards: int = 2) -> Fitted:
    """Finn and Johnson 1968, cell averaging: flag above alpha times the mean of the rows around, two apart.

    alpha = N (p^(-1/N) - 1) is exact where scores are independent and exponential.
    """
    side = cells // 2
    offsets = [sign * (guards + i) for i in range(1, side + 1) for sign in (-1, 1)]

    def ratio(rows: Floats) -> Floats:
        scores = rows[:, 0]
        around = np.zeros_like(scores)
        for offset in offsets:
            around += np.roll(scores, offset)
        return np.asarray(scores / np.maximum(around / cells, np.finfo(float).tiny))

    return Fitted(ratio, cells * (RATES ** (-1 / cells) - 1), 0)


def fit_spot(sample: Sample) -> Fitted:
    """Siffer et al. 2017: a generalised Pareto tail above the 98 % quantile, or above the rarest twice the rate."""
    from libspot import Spot

    levels = []
    for rate in RATES:
        spot = Spot(q=rate, level=min(0.98, 1 - 2 * rate), max_excess=len(sample.scores))
        spot.fit(sample.scores)
        levels.append(np.nextafter(spot.quantile(rate), np.inf))
    return thresholds(np.array(levels))


def fit_dadalto(sample: Sample) -> Fitted:
    """Dadalto et al. 2024: the p-values of two detectors by Fisher's statistic, with Brown's correction (1975)."""
    ordered = np.sort(sample.benign, axis=0)
    n = len(ordered)

    def fisher(rows: Floats) -> Floats:
        """-2 sum log p, each p from the benign fit scores of its detector."""
        above = [n - np.searchsorted(column, row) for column, row in zip(ordered.T, rows.T, strict=True)]
        return -2 * np.log((1 + np.array(above)) / (n + 1))

    one, two = fisher(sample.benign)
    mean, variance = 4.0, 8.0 + 2 * np.cov(one, two)[0, 1]  # of the sum; if independent, chi-squared with 4
    scale, freedom = variance / (2 * mean), 2 * mean**2 / variance
    return Fitted(
        lambda rows: -chdtrc(freedom, fisher(rows).sum(axis=0) / scale), -RATES, ordered.nbytes + 2 * ordered.itemsize
    )


RIVALS = (
    Rival(
        "gate (conservative ties)",
        partial(fit_gate, policy="default"),
        "benign scores",
        "one score, every rate, the same in every release",
        "a bound, unless the policy says `plotting_position: {np: 0.95}`",
        package="fpr-gate",
    ),
    Rival(
        "gate (average ties)",
        partial(fit_gate, policy="paper"),
        "benign scores",
        "the paper's calibrator",
        "a rate that holds where scores are tied",
        package="fpr-gate",
    ),
    Rival(
        "fprcal",
        fit_fprcal,
        "benign scores",
        "the paper's own code; no gate around it",
        "a rate that holds where scores are tied; any check on held-out rows",
        package="fprcal",
    ),
    Rival(
        "raw threshold kept",
        fit_raw,
        "benign scores, once",
        "nothing to ship, nothing to fit",
        "any meaning after a retraining",
    ),
    Rival(
        "Platt scaling",
        partial(fit_sklearn, method="sigmoid"),
        "labels, positives",
        "a probability, where the mix of classes is that of production",
        "a false-positive rate: it moves with the share and kind of positives",
        package="scikit-learn",
    ),
    Rival(
        "isotonic calibration",
        partial(fit_sklearn, method="isotonic"),
        "labels, positives",
        "a probability, of any shape",
        "a false-positive rate; steps merge the rare benign scores",
        package="scikit-learn",
    ),
    Rival(
        "beta calibration",
        fit_beta,
        "labels, positives",
        "a probability, from three numbers",
        "a false-positive rate: it moves with the share and kind of positives",
        package="betacal",
    ),
    Rival(
        "Kriegel's unification (PyOD)",
        fit_kriegel,
        "benign scores",
        "two numbers would do",
        "a tail: scores are taken for normal",
        package="pyod",
    ),
    Rival(
        "Merlion's score calibration",
        fit_merlion,
        "benign scores",
        "nine knots; z-scores that people know",
        "a tail: no knot between 4.6 % and the largest fit score",
        package="salesforce-merlion",
    ),
    Rival(
        "Neyman-Pearson umbrella",
        fit_umbrella,
        "benign scores",
        "an upper bound by design, 95 % of the time",
        "a score: one new threshold for each rate and release",
        keeps=False,
    ),
    Rival(
        "Learn-then-Test (MAPIE, Holm)",
        partial(fit_learn_then_test, correction="bonferroni_holm"),
        "labels, positives",
        "an upper bound by design, 95 % of the time, of any risk",
        "a score: one new threshold for each rate and release; leaves most of what is allowed unused",
        package="mapie",
        keeps=False,
    ),
    Rival(
        "Learn-then-Test (MAPIE, fixed sequence)",
        partial(fit_learn_then_test, correction="fixed_sequence"),
        "labels, positives",
        "an upper bound by design, 95 % of the time, of any risk",
        "a score: one new threshold for each rate and release",
        package="mapie",
        keeps=False,
    ),
    Rival(
        "conformal p-values (crepes)",
        fit_conformal,
        "benign scores",
        "valid on average by design; one number, every rate",
        "a small artifact: it ships every fit score, and reads all of them for each row",
        package="crepes",
        timed_rows=500,
    ),
    Rival(
        "cell-averaging CFAR",
        fit_cfar,
        "nothing but the rows around",
        "no benign sample; follows a level that drifts",
        "a rate, unless scores are exponential; a row's own meaning",
        whole=True,
    ),
    Rival(
        "SPOT (libspot)",
        fit_spot,
        "benign scores",
        "rates that no fit row has reached; adapts as rows come in",
        "a score: one new threshold for each rate and release; tied scores",
        package="libspot",
        keeps=False,
    ),
    Rival(
        "Dadalto's combined p-values",
        fit_dadalto,
        "benign scores of two detectors",
        "joins detectors into one number",
        "a small artifact: it ships every fit score of every detector",
        whole=True,
    ),
)
UNMEASURED = {
    "CADET": "not measured: it corrects the reconstruction error of a deep autoencoder by how hard each row is to "
    "reconstruct, so it needs that model and the rows themselves; all others need scores alone"
}


# --- the settings -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """What one release of the detector gives: scores to fit on, and fresh benign ones."""

    fit: Sample
    fresh: Floats


@dataclass(frozen=True)
class Setting:
    """A setting draws the releases of a detector, the same for the same seed; `steps` names pairs: before and after."""

    draw: Callable[[int], list[Release]]
    steps: dict[str, tuple[int, int]]


def simulate(seed: int, rows: int, fresh: int, tied: bool) -> list[Release]:
    """Benign traffic stays as it is. Retrained on newer attacks, which are more, the model scores all rows anew.

    Scores are logit-normal, as in `gate demo`. Tied: sums of few leaves, and a highest sum that 4 benign rows in 10,000
    share, as in the paper's section on limitations.
    """
    rng = np.random.default_rng(seed)
    releases = []
    for retrained in (False, True):
        level, sharpness = (0.6, 1.15) if retrained else (0.0, 1.0)
        attacks, share = (4.2, 0.04) if retrained else (3.4, 0.01)

        def score(centre: float, n: int, level: float = level, sharpness: float = sharpness) -> Floats:
            common = rng.normal(size=(n, 1))
            views = centre + math.sqrt(0.6) * common + math.sqrt(0.4) * rng.normal(size=(n, 2))
            if tied:
                views = np.minimum(np.round(views * 12 / sharpness) * sharpness / 12, norm.isf(4e-4))
            return expit(level + sharpness * (-5 + 1.4 * views))

        sample = Sample(score(0.0, rows), score(attacks, round(share * rows)))
        releases.append(Release(sample, score(0.0, fresh)))
    return releases


def split(seed: int, benign: Floats, malicious: Floats) -> list[Release]:
    """Half of the rows to fit on, half of them fresh; every column is a release, with the next as second detector."""
    rng = np.random.default_rng(seed)
    rows, attacks = rng.permutation(len(benign)), rng.permutation(len(malicious))
    half, few = len(benign) // 2, max(1, len(malicious) // 2)
    releases = []
    for column in range(benign.shape[1]):
        pair = [column, (column + 1) % benign.shape[1]]
        sample = Sample(benign[rows[:half]][:, pair], malicious[attacks[:few]][:, pair])
        releases.append(Release(sample, benign[rows[half:]][:, pair]))
    return releases


def read_setting(path: Path, label: str) -> Setting:
    """Every score column of a labelled file in turn as the first release, the next column as its retraining."""
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise ValueError(f"{path}: must be a .parquet or .csv file, got none; name one that is there")
    table = (pyarrow.parquet.read_table if path.suffix == ".parquet" else pyarrow.csv.read_csv)(path)
    if label not in table.column_names:
        raise ValueError(f"{path}: must have the column {label!r}, got {table.column_names}; name it with --label")
    labels = table[label].to_numpy()
    columns = {
        name: scores
        for name in table.column_names
        if name != label
        and (scores := table[name].to_numpy()).dtype.kind == "f"
        and np.all((scores >= 0) & (scores <= 1))
    }
    benign, few = int(np.count_nonzero(labels == 0)), 1000
    if len(columns) < 2 or benign < few or benign == len(labels):
        raise ValueError(
            f"{path}: must have two columns of scores between 0 and 1, {few:,} rows with the {label} 0 and some with "
            f"another, got {len(columns)}, {benign:,} and {len(labels) - benign:,}; add scores or rows"
        )
    names, scores = list(columns), np.column_stack(list(columns.values()))
    nexts = [(i + 1) % len(names) for i in range(len(names))]
    return Setting(
        partial(split, benign=scores[labels == 0], malicious=scores[labels != 0]),
        {
            f"{path.stem}: {names[i]}, retrained as {names[j]} ({benign:,} benign rows)": (i, j)
            for i, j in enumerate(nexts)
        },
    )


# --- measuring ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """FPR / target of one rival in one setting: a row for each fit, a column for each rate."""

    first: Floats
    retrained: Floats


def find_thresholds(fitted: Fitted, levels: Floats) -> Floats:
    """The smallest score between 0 and 1 whose value reaches each level, infinite where none does.

    Bisection over bit patterns: doubles from 0 up are ordered as their bits are.
    """
    highest = int(np.float64(1.0).view(np.int64))
    low, high = np.full(len(levels), -1, np.int64), np.full(len(levels), highest, np.int64)
    reached = fitted.values(np.ones(len(levels))) >= levels
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 0)
        enough = fitted.values(middle.view(np.float64)) >= levels
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reached, high.view(np.float64), np.inf)


def measure_ratio(rival: Rival, fitted: Fitted, levels: Floats, release: Release, ordered: Floats) -> Floats:
    """FPR / target at each level, on the fresh rows; `ordered` are their scores.

    A threshold decides if higher scores have higher values. Rows with neighbours, and a probability that falls with the
    score (which few positives can make it do), are counted row by row.
    """
    ends = None if rival.whole else fitted.values(np.array([0.0, 1.0]))
    if ends is None or ends[0] > ends[1]:
        values = fitted.values(release.fresh if rival.whole else ordered)
        flagged = np.count_nonzero(values[:, None] >= levels, axis=0)
    else:
        flagged = len(ordered) - np.searchsorted(ordered, find_thresholds(fitted, levels))
    return np.asarray(flagged / (len(ordered) * RATES))


def measure(rivals: list[Rival], setting: Setting, fits: int) -> dict[str, dict[str, Outcome]]:
    """Measure every rival at every step; the outcomes are given by step and by rival."""
    ratios: dict[tuple[str, str], list[tuple[Floats, Floats]]] = {}
    for seed in range(fits):
        releases = setting.draw(seed)
        orders = [np.sort(release.fresh[:, 0]) for release in releases]
        for rival in rivals:
            fitted = [rival.fit(release.fit) for release in releases]

            for step, (before, after) in setting.steps.items():
                used = fitted[before if rival.keeps else after].levels
                first, retrained = (
                    measure_ratio(rival, fitted[at], levels, releases[at], orders[at])
                    for at, levels in ((before, fitted[before].levels), (after, used))
                )
                ratios.setdefault((step, rival.name), []).append((first, retrained))
    return {
        step: {rival.name: Outcome(*np.swapaxes(ratios[step, rival.name], 0, 1)) for rival in rivals}
        for step in setting.steps
    }


def time_rivals(rivals: list[Rival], setting: Setting, repeats: int = 3) -> dict[str, tuple[float, float, int]]:
    """Seconds to fit, seconds per row to predict, bytes; each the best of its turns, all rivals in turn."""
    best: dict[str, tuple[float, float, int]] = {}
    for turn in range(repeats):
        release = setting.draw(turn)[0]
        for rival in rivals:
            start = time.perf_counter()
            fitted = rival.fit(release.fit)
            fit_time = time.perf_counter() - start
            rows = release.fresh[: rival.timed_rows]
            rows = rows if rival.whole else np.ascontiguousarray(rows[:, 0])
            start = time.perf_counter()
            for level in fitted.levels:
                np.count_nonzero(fitted.values(rows) >= level)
                if fitted.values is not identity:  # one call gives the value for every rate
                    break
            predict_time = (time.perf_counter() - start) / len(rows)
            fastest = best.get(rival.name, (math.inf, math.inf, 0))
            best[rival.name] = (min(fit_time, fastest[0]), min(predict_time, fastest[1]), fitted.artifact)
    return best


# --- words --------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if value < 0.01:
        return "<0.01"
    value = float(f"{value:.3g}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value))) if value >= 1 else 2}f}"


def cell(ratios: Floats) -> str:
    return f"{number(ratios.mean())} ({number(ratios.min())}–{number(ratios.max())})"


def hold(retrained: Floats) -> str:
    """Say in words whether four rates still hold: half of the target to one and a half, as in policies/paper.yaml."""
    means = retrained.mean(axis=0)
    worst, least = int(np.argmax(means)), int(np.argmin(means))
    if means[worst].round(2) > 1.5:
        return f"no: {number(means[worst])} x at {PERCENTS[worst]}"
    if means[least].round(2) < 0.5:
        return f"not above; {number(means[least])} x at {PERCENTS[least]}"
    return "yes"


def size(artifact: int) -> str:
    return f"{artifact} B" if artifact < 1000 else f"{artifact / 1000:,.0f} KB"


def table(header: list[str], rows: list[list[str]]) -> str:
    ruler = ["---"] + ["---:" if name.rstrip(" %").replace(".", "").isdigit() else "---" for name in header[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ruler, *rows])


def rate_table(outcomes: dict[str, Outcome], retrained: bool) -> str:
    rows = []
    for name, outcome in outcomes.items():
        ratios = outcome.retrained if retrained else outcome.first
        rows.append([name, *(cell(ratios[:, i]) for i in range(len(RATES))), *([hold(ratios)] if retrained else [])])
    return table(["rival", *PERCENTS, *(["holds"] if retrained else [])], rows)


def cost_table(times: dict[str, tuple[float, float, int]]) -> str:
    fit_ours, predict_ours, _ = times[RIVALS[0].name]
    rows = []
    for rival in RIVALS:
        texts = [rival.needs, rival.better, rival.lacks]
        if rival.name not in times:
            rows.append([rival.name, f"not installed: {rival.package}", "", "", "", *texts])
            continue
        fit_time, predict_time, artifact = times[rival.name]
        ratios = [number(fit_time / fit_ours), number(predict_time / predict_ours)]
        rows.append([rival.name, rival.version or "", size(artifact), *ratios, *texts])
    header = [
        "rival",
        "measured with",
        "artifact",
        "fit time / ours",
        "predict time / ours",
        "needs",
        "better",
        "lacks",
    ]
    rows += [[name, reason, "", "", "", "the model and its rows", "", ""] for name, reason in UNMEASURED.items()]
    return table(header, rows)


README_RIVALS = (
    "gate (conservative ties)",
    "fprcal",
    "raw threshold kept",
    "Platt scaling",
    "Neyman-Pearson umbrella",
    "conformal p-values (crepes)",
)
README_HEADER = [
    "what you use",
    "0.1 %",
    "0.01 %",
    "0.01 %, tied",
    "holds after retraining",
    "artifact",
    "better",
    "lacks",
]


def readme_table(
    smooth: dict[str, Outcome], tied: dict[str, Outcome], times: dict[str, tuple[float, float, int]]
) -> str:
    """The six rows of the README: after the retraining, smooth and tied scores, from the same run."""
    rows = []
    for rival in RIVALS:
        if rival.name in README_RIVALS and rival.name in smooth:
            shown = ((smooth, 2), (smooth, 3), (tied, 3))
            rates = [number(outcome[rival.name].retrained[:, i].mean()) for outcome, i in shown]
            holds = hold(smooth[rival.name].retrained)
            artifact = size(times[rival.name][2])
            rows.append([rival.name, *rates, holds, artifact, rival.better, rival.lacks])
    return table(README_HEADER, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="labelled scores, .parquet or .csv")
    parser.add_argument("--label", default="label", help="the column that is 0 on benign rows")
    parser.add_argument("--fits", type=int, default=10, help="independent fits, or splits of a file")
    parser.add_argument("--rows", type=int, default=100_000, help="simulated benign rows to fit on")
    parser.add_argument("--fresh", type=int, default=1_000_000, help="simulated fresh benign rows for each fit")
    options = parser.parse_args()
    if min(options.fits, options.rows // 1000, options.fresh // 1000) < 1:
        parser.error("--fits must be 1 or more, --rows and --fresh 1,000 or more")
    try:
        real = [read_setting(path, options.label) for path in options.files]
    except ValueError as error:
        parser.error(str(error))
    rivals = [rival for rival in RIVALS if rival.version is not None]
    simulated = [
        Setting(
            partial(simulate, rows=options.rows, fresh=options.fresh, tied=kind == "tied"),
            {f"Simulated {kind} scores ({options.rows:,} benign rows to fit, {options.fresh:,} fresh)": (0, 1)},
        )
        for kind in ("smooth", "tied")
    ]
    times = time_rivals(rivals, simulated[0])
    print(f"FPR / target: the mean of {options.fits} fits, and in brackets the lowest and the highest of them.\n")
    outcomes = []
    for setting in [*simulated, *real]:
        for step, found in measure(rivals, setting, options.fits).items():
            outcomes.append(found)
            print(f"### {step}\n\nFirst release:\n\n{rate_table(found, retrained=False)}\n")
            print(f"After the retraining:\n\n{rate_table(found, retrained=True)}\n", flush=True)
    print(f"### What each costs, needs and lacks\n\n{cost_table(times)}\n")
    if len(rivals) < len(RIVALS):
        print(f"To install the rest: `{INSTALL}`\n")
    print(f"### For the README\n\n{readme_table(outcomes[0], outcomes[1], times)}")


if __name__ == "__main__":
    sys.exit(main())
