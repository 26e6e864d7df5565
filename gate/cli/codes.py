"""The exit codes of every command."""

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
NO_JUDGEMENT, INTERNAL_ERROR, INTERRUPTED = 2, 70, 130

EXIT_CODE_HELP = """\b
Exit codes:
   0  pass (waived and advisory findings are shown, and do not block)
   1  fail: the evidence shows a violation of the policy
   2  no judgement possible: bad usage, policy, scores or release directory
   3  inconclusive: not enough evidence either way
  70  internal error (a crash is not a verdict)
"""
