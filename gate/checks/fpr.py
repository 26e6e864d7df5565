"""The targets: whether the held-out false-positive rate at each anchor is what the contract promises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from gate.calibration.positions import fractional_rank, named, rows_to_support
from gate.checks import readings
from gate.checks.check import (
    MISCOUNTED,
    PASSED,
    SCORE_THEM,
    TIED,
    UNDECIDED,
    UNSCORED,
    UNSUPPORTED,
    Asked,
    Case,
    Check,
    Evidence,
    Finding,
    describe_unscored,
    inside,
)
from gate.checks.exchangeability import Exchangeability, ExchangeabilitySettings, p_value_at
from gate.checks.granularity import TOP_TIED, attainability_of, describe
from gate.checks.rates import (
    NOT_COMPUTED,
    PROMISE,
    UNREACHABLE_TARGET,
    describe_count,
    describe_critical,
    describe_deciding,
    grade_count,
    judged_rate,
)
from gate.checks.readings import Sentences
from gate.checks.reuse import alpha_of
from gate.checks.served import ServedRows
from gate.checks.served import remedy as served_remedy
from gate.planning import Advice, Budget, advise, advise_at_rate, band_of, ships
from gate.planning import warnings as plan_warnings
from gate.planning.law import SAFE_RANK
from gate.planning.sequential import Deciding, decide_band
from gate.policy import Policy, Target
from gate.statistics.binomial import Band, CountRange, CriticalCounts, beta_binomial_quantiles
from gate.statistics.drift import Tail, ratio_of, read_ratio
from gate.statistics.tally import Tally
from gate.stored import MOST_ROWS, ExactRate, Grade, Outcome, Section

DECIDING_STEPS = 50  # that one simulation takes from the budget of advice
OFTEN = 0.8  # how often a finding shall be decided


class AtAnchor(Section):
    """The rows that reach the threshold of one anchor."""

    fpr: ExactRate
    tally: Tally


class AtAnchors(Section):
    """The rows of one sample at every anchor of the contract."""

    anchors: tuple[AtAnchor, ...]

    @property
    def tallies(self) -> dict[Decimal, Tally]:
        return {anchor.fpr: anchor.tally for anchor in self.anchors}

    def at(self, fpr: Decimal) -> Tally | None:
        return next((anchor.tally for anchor in self.anchors if anchor.fpr == fpr), None)


class Targets(AtAnchors):
    """The held-out rows at every anchor of the contract, the targets among them."""


def measure(case: Case) -> Targets:
    """Count the held-out benign rows at every anchor."""
    return Targets(anchors=tuple(AtAnchor(fpr=fpr, tally=found) for fpr, found in case.benign.items()))


# --- the judgement ------------------------------------------------------------------------------------------


class JudgedTarget:
    """One target with its count, and what follows from the two."""

    def __init__(self, policy: Policy, evidence: Evidence, target: Target, tally: Tally, budget: Budget) -> None:
        self.policy, self.target, self.tally = policy, target, tally
        self.fit_n = evidence.fit.n
        self.unscored = describe_unscored(evidence)
        self.largest_group = evidence.holdout.largest_group or 1
        self.band: Band = band_of(target, alpha_of(policy, evidence), policy.interval)
        self.critical: CriticalCounts = tally.critical(self.band)
        self.extrapolated = float(target.fpr) < evidence.calibrator.lowest_label
        self.too_coarse = attainability_of(policy, evidence, target) in ("unattainable", "resolution")
        found = evidence.of(Exchangeability)
        self.against_fit = None if found is None else found.at(target.fpr)
        self.support = rows_to_support(named(policy.calibration.plotting_position), float(target.fpr))
        self.deciding = self._deciding(budget)
        self.advice = None if self.deciding else self._advice(budget)

    @property
    def rule(self) -> str:
        """An extrapolated threshold is believed only when proven on held-out rows."""
        return "proven" if self.extrapolated else self.policy.rule

    @property
    def too_few_rows(self) -> bool:
        return self.tally.independent_rows < self.target.min_n

    @property
    def accepts(self) -> CountRange | None:
        """The smallest and largest count that passes on these rows, or None if no count does."""
        return None if self.too_few_rows else self.critical.passing(self.rule, self.tally.rows)

    @property
    def grade(self) -> Grade:
        return grade_count(self.tally.flagged, self.critical)

    @property
    def predicted(self) -> CountRange | None:
        """The counts that 95 % of sound releases show, by the noise of the calibrator and of the held-out sample."""
        if self.tally.is_clustered:
            return None if self.against_fit is None else self.against_fit.predicted
        position = named(self.policy.calibration.plotting_position)
        rank = float(fractional_rank(position, Fraction(self.target.fpr), self.fit_n))
        return None if rank < 1 else beta_binomial_quantiles(self.tally.rows, rank, self.fit_n - rank + 1, 0.05)

    @property
    def spare(self) -> int:
        """How many more flagged rows would leave the tolerance."""
        return max(math.floor(self.tally.rows * self.band.high) - self.tally.flagged, 0)

    @property
    def too_skewed(self) -> bool:
        """Whether only groups of unlike sizes keep the count from being proven.

        Independent rows would prove it, but the largest group alone could hide more rows than the tolerance leaves.
        """
        plain = self.tally.model_copy(update={"effective": None})
        proven = grade_count(self.tally.flagged, plain.critical(self.band)) == "proven"
        return self.tally.is_clustered and proven and self.largest_group > self.spare

    @property
    def ships(self) -> tuple[tuple[float, float], ...]:
        """The chance that a release 1 + 2r, 2 and 5 times over its target passes on as many rows."""
        target, rows = self.target, int(self.tally.independent_rows)
        excess = Fraction(target.max_relative_error.above)
        chances = ships(self.rule, self.band, Fraction(target.fpr), excess, max(rows, 1), target.min_n)
        return tuple((float(one.multiple), min(max(one.passes, 0.0), 1.0)) for one in chances)

    def _advice(self, budget: Budget) -> Advice | None:
        found, k, n = self.tally, self.tally.flagged, self.tally.rows
        worth = found.independent_rows / n
        if inside(self.accepts, k):
            return None
        if found.threshold is None:  # nothing is ever flagged
            return advise_at_rate(self.rule, self.band, 0, n, budget, min_n=self.target.min_n, worth=worth)
        if self.extrapolated and self.fit_n >= self.support:  # tied scores are the cause
            return None
        refuted = any(inside(counts, k) for counts in self.critical.refuted(n))
        return advise(self.policy, self.target, k, n, self.fit_n, budget, worth=worth, refuted=refuted)

    def _deciding(self, budget: Budget) -> Deciding | None:
        """With sequential looks: the rows in all that decide an open target, 80 % of the time if possible.

        The law of the true rate is that of the fit if enough fit rows lie beyond the target, else that of the count.
        """
        n, k = self.tally.rows, self.tally.flagged
        looks = self.policy.interval == "sequential" and self.tally.threshold is not None
        if not looks or self.grade == "refuted" or inside(self.accepts, k) or budget.left < DECIDING_STEPS:
            return None
        for _ in range(DECIDING_STEPS):
            budget.spend()
        if self.grade == "proven":  # only min_n is not reached
            return Deciding(self.target.min_n, 1.0, 1.0, 0.0)
        position, fpr = named(self.policy.calibration.plotting_position), Fraction(self.target.fpr)
        x = float(fractional_rank(position, fpr, self.fit_n))
        found = decide_band(self.band, fpr, k, n, (x, self.fit_n - x + 1) if x >= SAFE_RANK else None)
        return next((one for one in found if one.chance >= OFTEN), found[-1] if found else None)

    def decide(self) -> tuple[Outcome, str]:
        """Apply the policy's rule: a proven violation fails, and only a count that the rule believes passes."""
        if self.grade == "refuted":
            if self.tally.threshold is None:
                return "fail", "unreachable"
            if self.too_coarse:
                return "fail", "granularity"
            return "fail", "too-many" if self.tally.exact_rate > Fraction(self.target.fpr) else "too-few"
        if self.unscored:
            return "inconclusive", "unscored"
        # If nothing is ever flagged, more rows bring no false positive, so no count can pass a band above zero.
        if self.tally.threshold is None and self.band.low > 0 and self.rule != "not-refuted":
            return "inconclusive", "unreachable"
        if self.too_few_rows:
            return "inconclusive", "min-n"
        if self.grade == "proven":
            return "pass", "proven"
        if inside(self.critical.passing(self.rule, self.tally.rows), self.tally.flagged):
            return "pass", self.policy.rule
        if self.too_coarse:
            return "inconclusive", "granularity"
        if self.too_skewed:
            return "inconclusive", "skewed-groups"
        if self.extrapolated:
            return "inconclusive", "extrapolated"
        return "inconclusive", "open" if self.policy.rule == "proven" else "outside"


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Judge every target by the policy's rule."""
    scores = {point.fpr: point.score for point in policy.contract}
    for judged in judge_targets(policy, evidence):
        outcome, reason = judged.decide()
        coarse = describe(policy, evidence, judged.target) if reason == "granularity" else None
        drift = _served_otherwise(evidence, judged, outcome)
        if drift is None and coarse is None:
            drift = _noise_or_drift(policy, evidence, judged, outcome)
        message = _message(judged, reason, coarse)
        remedy = drift.remedy if drift and drift.remedy else coarse.remedy if coarse else _remedy(judged, reason)
        if judged.advice is None and reason == "extrapolated":  # tied scores are the cause
            tied = describe(policy, evidence, judged.target)
            remedy = (tied and tied.remedy) or TOP_TIED
        if reason == "too-many" and judged.target.fpr <= RARE:
            remedy = f"{LOOK_FIRST}; else {remedy}"
        if reason == "unscored":
            remedy = SCORE_THEM
        yield Finding(
            check=judged.target.check,
            outcome=outcome,
            grade=judged.grade,
            required=judged.target.required,
            reason=reason,
            message=f"{message}; {drift.message}" if drift else message,
            remedy=remedy,
            rate=judged_rate(
                judged.target.fpr,
                scores[judged.target.fpr],
                judged.tally,
                judged.band,
                min_n=judged.target.min_n,
                accepts=judged.accepts,
                predicted=judged.predicted,
                drift_p_value=p_value_at(evidence, judged.target.fpr),
                ships=judged.ships,
            ),
        )


@lru_cache(maxsize=4)  # several checks ask for it, and advice takes long
def judge_targets(policy: Policy, evidence: Evidence) -> tuple[JudgedTarget, ...]:
    """The targets in the policy's order; from the highest rate down they share one budget of advice."""
    found = evidence.of(Targets)
    counts = {} if found is None else found.tallies
    measured = [target for target in policy.targets if target.fpr in counts]
    budget, judged = Budget(), {}
    for target in sorted(measured, key=lambda target: -target.fpr):
        judged[target.fpr] = JudgedTarget(policy, evidence, target, counts[target.fpr], budget)
    return tuple(judged[target.fpr] for target in measured)


# --- sentences ----------------------------------------------------------------------------------------------

RARE = Decimal("0.001")
LOOK_FIRST = "look at the false positives (--flagged FILE): at rare rates most are malicious rows with a benign label"


def _noise_or_drift(policy: Policy, evidence: Evidence, judged: JudgedTarget, outcome: Outcome) -> Sentences | None:
    """What the ratio of held-out to fit rows at the threshold says; of a pass, only if the samples differ."""
    settings, at = policy.settings(ExchangeabilitySettings), judged.against_fit
    p_value = p_value_at(evidence, judged.target.fpr)
    if settings is None or at is None or p_value is None or judged.tally.threshold is None:
        return None
    error = judged.target.max_relative_error
    above, below = Fraction(error.above), Fraction(error.below)
    held_out, fit = (Tail(tally.flagged, tally.rows, tally.worth) for tally in (judged.tally, at.fit))
    ratio = ratio_of(held_out, fit, float(judged.band.alpha))
    reading = read_ratio(ratio, above, below, p_value, float(settings.alpha))
    if outcome == "pass" and reading != "drift":
        return None
    said = readings.noise_or_drift(ratio, reading, above, below, outcome == "pass")
    if outcome == "pass":
        return said._replace(remedy=None)
    if reading == "noise" and judged.grade == "refuted":
        return said._replace(message=f"{said.message}, so that the fit sample put the threshold off")
    return said if reading == "drift" else said._replace(remedy=None)


def _served_otherwise(evidence: Evidence, judged: JudgedTarget, outcome: Outcome) -> Sentences | None:
    """What the served scores say of a count that does not pass: the calibrator is not the cause of those rows."""
    found = evidence.of(ServedRows)
    crossing = None if found is None or outcome == "pass" else found.benign.at(judged.target.fpr)
    if found is None or crossing is None:
        return None
    as_released = judged.tally.flagged - crossing.more + crossing.fewer
    passes = "which passes" if inside(judged.accepts, as_released) else "which does not pass either"
    message = f"as the release scores these rows, {as_released:,} would be flagged, {passes}"
    return Sentences(message, served_remedy(found.benign))


def _message(judged: JudgedTarget, reason: str, coarse: Sentences | None) -> str:
    counted = describe_count(judged.tally)
    if judged.tally.threshold is None:
        counted += "; no raw score reaches this anchor, so nothing is ever flagged there"
    elif coarse is not None:
        counted += f"; {coarse.message}"
    elif reason == "skewed-groups":
        skewed = readings.skewed_groups(judged.largest_group, judged.tally.rows, judged.spare)
        counted += f"; {skewed.message}"
    elif judged.extrapolated:
        counted += "; the threshold is extrapolated beyond the fit sample"
    counted += f"; {judged.unscored}" if judged.unscored else ""
    passes = None
    if reason == "min-n":
        independent = "independent " if judged.tally.is_clustered else ""
        passes = f"no count passes on fewer than {judged.target.min_n:,} {independent}rows"
    return f"{counted}; {describe_critical(judged.critical, passes)}"


def _remedy(judged: JudgedTarget, reason: str) -> str | None:
    """What would let the finding pass, and how often; None if it passes or more rows are no help."""
    if reason in ("proven", "observed", "not-refuted", "unscored"):
        return None
    if reason == "unreachable":
        return UNREACHABLE_TARGET
    if reason == "skewed-groups":
        return readings.skewed_groups(judged.largest_group, judged.tally.rows, judged.spare).remedy
    advice, found = judged.advice, judged.tally
    if judged.deciding is not None:
        return describe_deciding(judged.deciding, found.rows, judged.target.min_n)
    if advice is None:
        return TOP_TIED
    like = ", in groups like these" if found.is_clustered else ""
    if advice.more is not None and advice.fresh:
        rows = f"hold out {advice.more:,} benign rows that have judged no release yet{like}"
        return f"{rows}: a sound release with this count {PROMISE}"
    if advice.more is not None:
        rows = f"hold out {advice.more - found.rows:,} more benign rows ({advice.more:,} in all){like}"
        return f"{rows}: a sound release with this count {PROMISE}"
    if advice.again is not None:
        rows = f"fit on and hold out {advice.again:,} fresh rows each{like}"
        return f"{rows}: on benign rows like those to come, a sound release {PROMISE}"
    if not advice.computed:
        return f"hold out more benign rows, or fit again: {NOT_COMPUTED}; `gate plan` looks further"
    if judged.target.min_n > MOST_ROWS * found.independent_rows / found.rows:
        return f"lower the min_n of {judged.target.min_n:,}: gate judges at most {MOST_ROWS:,} rows"
    none = f"no number of rows up to {MOST_ROWS:,} lets a sound release pass 95 % of the time"
    return f"widen max_relative_error or drop this target: {none}"


# --- the check ----------------------------------------------------------------------------------------------


def warnings(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """Targets that passed and yet are dead or weak at these sizes; other targets have findings with a remedy."""
    judged = judge_targets(policy, evidence) if policy.interval != "sequential" else []  # where one may look again
    if judged:
        rows = int(min(one.tally.independent_rows for one in judged))
        passed = {one.target.check for one in judged if one.decide()[0] == "pass"}
        yield from plan_warnings(policy, passed, evidence.fit.n, rows)


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    for i, target in enumerate(policy.targets):
        yield Asked(target.check, target.required, "held-out rows", ("targets", i))


CHECK = Check(
    key="fpr",
    asks="whether the false-positive rate at each target is the one that the contract promises",
    decides=(
        "It counts the held-out benign rows that reach the target's threshold and bounds their rate exactly. The whole "
        "interval inside the tolerance proves the target, the whole interval outside refutes it, anything else is open."
    ),
    causes=(
        "too few held-out rows, a threshold put off by too few fit rows, drift between the samples, mislabelled "
        "malicious rows among the benign ones, or tied scores"
    ),
    helps=(
        "Too many: look at the false positives (--flagged FILE); at rare rates most are malicious rows with a benign "
        "label. Too many or too few: find out what differs between fit and held-out rows, then fit on rows like those "
        "to come. Open: hold out as many more rows as the finding names; `gate plan` tells beforehand."
    ),
    evidence=Targets,
    measure=measure,
    judge=judge,
    asked=asked,
    warnings=warnings,
    reasons=PASSED
    | MISCOUNTED
    | UNDECIDED
    | UNSUPPORTED
    | TIED
    | UNSCORED
    | {"skewed-groups": "groups too unlike in size to prove it"},
)
