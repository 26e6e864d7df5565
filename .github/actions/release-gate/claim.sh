#!/usr/bin/env bash
# claim.sh LEDGER COMMAND...: count a judgement on the branch that keeps the ledger, before anybody sees its verdict.
#
# The command is a dry run, which adds its line to LEDGER. The branch with the line is pushed; where another job was
# faster, its line is fetched and the command runs again on top of it, so that two jobs at once are two uses. Nothing is
# ever forced. Needs LEDGER_BRANCH, LEDGER_URL and, where the server asks for it, LEDGER_TOKEN in the environment.
set -uo pipefail

refuse() {
  echo "ledger-branch: $1" | sed 's/##\[/## [/g' >&2
  exit 2
}

ledger=$1
shift
place=$(dirname -- "$ledger")
branch=refs/heads/$LEDGER_BRANCH
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_CONFIG_PARAMETERS # of another repository
export GIT_TERMINAL_PROMPT=0
export GIT_CONFIG_COUNT=4
export GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null
export GIT_CONFIG_KEY_1=user.name GIT_CONFIG_VALUE_1=release-gate
export GIT_CONFIG_KEY_2=user.email GIT_CONFIG_VALUE_2=release-gate@localhost
export GIT_CONFIG_KEY_3=commit.gpgSign GIT_CONFIG_VALUE_3=false
if [ -n "${LEDGER_TOKEN:-}" ]; then # not as an argument, which other processes could read
  secret=$(printf 'x-access-token:%s' "$LEDGER_TOKEN" | base64 | tr -d '\n')
  export GIT_CONFIG_COUNT=5 GIT_CONFIG_KEY_4="http.$LEDGER_URL.extraHeader"
  export GIT_CONFIG_VALUE_4="Authorization: Basic $secret"
fi
git check-ref-format "$branch" || refuse "must be the name of a branch"
url=$LEDGER_URL

fetch() { # an empty directory where there is no such branch yet; an error where that cannot be known
  rm -rf -- "$place"
  mkdir -p -- "$place" && git init --quiet "$place" || return
  known=$(git ls-remote "$url" "$branch") || return
  head=${known%%[[:space:]]*}
  [ -n "$head" ] || return 0
  git -C "$place" fetch --quiet --depth=1 "$url" "$branch" || return
  git -C "$place" checkout --quiet --detach FETCH_HEAD || return
  head=$(git -C "$place" rev-parse HEAD)
  [ "$(git -C "$place" ls-tree -r --name-only HEAD)" = ledger.jsonl ] ||
    refuse "must be a branch of its own, which holds ledger.jsonl and nothing else"
}

refusals=0
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  fetch || refuse "must be a branch that can be fetched, of a repository that this job may read"
  # Refused three times although the branch stayed the same: then it was no other job.
  if [ "$head" != "${before-none}" ]; then refusals=0; fi
  [ "$refusals" -lt 3 ] || refuse "must be one that this job may push to; give it contents: write"
  before=$head
  cp -- "$ledger" "$place/.git/fetched" 2>/dev/null || : >"$place/.git/fetched"
  env -u LEDGER_TOKEN -u GIT_CONFIG_VALUE_4 "$@" >/dev/null 2>&1
  [ -e "$ledger" ] || exit 0 # refused before anything was judged: the real run says why
  cmp -s -- "$ledger" "$place/.git/fetched" && exit 0 # the same use as before, or none
  git -C "$place" add -- ledger.jsonl &&
    git -C "$place" commit --quiet --message "Count a judgement" || refuse "must have room for one more line"
  git -C "$place" push --quiet "$url" "HEAD:$branch" >/dev/null 2>&1 && exit 0
  refusals=$((refusals + 1))
  sleep $((RANDOM % (attempt + 1)))
done
refuse "must not be pushed to by other jobs all the time; run this job again"
