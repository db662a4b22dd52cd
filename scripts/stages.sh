#!/usr/bin/env bash
# Runs targets of the Makefile one after the other: all of them, also when one fails. Prints the time
# of each, and at the end which failed. Targets joined by a plus run beside each other. A stage that
# could not check something writes why to the file $STAGE_UNCHECKED; it is not counted as passed.
# After $STAGES_UNTIL, in seconds since 1970, no stage begins any more: on a slow machine the last lines
# name the stages that had no time.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: scripts/stages.sh TARGET[+TARGET...]..." >&2; exit 2; }
cd "$(dirname "$0")/.."
logs=target/stages
mkdir -p "$logs"
passed=() failed=() unchecked=() left_out=() started=$SECONDS

# Targets beside each other write to files, so that their lines do not mix.
run() {
  local begun=$SECONDS code=0
  export STAGE_UNCHECKED="$PWD/$logs/$1.unchecked"
  rm -f "$STAGE_UNCHECKED"
  if [ "$2" = alone ]; then
    "${MAKE:-make}" --no-print-directory "$1" || code=$?
  else
    "${MAKE:-make}" --no-print-directory "$1" >"$logs/$1.log" 2>&1 || code=$?
  fi
  echo $((SECONDS - begun)) >"$logs/$1.seconds"
  return $code
}

report() {
  local stage=$1 code=$2 how=$3
  [ "$how" = alone ] || { echo "--- $stage"; cat "$logs/$stage.log"; }
  local line
  line="$stage: $(cat "$logs/$stage.seconds") s"
  if [ "$code" = 0 ] && [ -s "$logs/$stage.unchecked" ]; then
    while read -r why; do unchecked+=("$stage: $why"); done <"$logs/$stage.unchecked"
    echo "=== $line, NOT CHECKED in full"
  elif [ "$code" = 0 ]; then
    passed+=("$line")
    echo "=== $line, passed"
  else
    failed+=("$line")
    echo "=== $line, FAILED"
  fi
}

has_no_time() {
  [ -n "${STAGES_UNTIL:-}" ] && [ "$(date +%s)" -ge "$STAGES_UNTIL" ]
}

for group in "$@"; do
  if has_no_time; then
    left_out+=("$group")
    continue
  fi
  IFS=+ read -ra stages <<<"$group"
  how=alone
  [ ${#stages[@]} = 1 ] || how=beside
  echo "=== ${group//+/ and }"
  pids=()
  for stage in "${stages[@]}"; do
    run "$stage" "$how" &
    pids+=($!)
  done
  for place in "${!stages[@]}"; do
    code=0
    wait "${pids[$place]}" || code=$?
    report "${stages[$place]}" "$code" "$how"
  done
done

echo
echo "=== $((SECONDS - started)) s in all"
for line in ${passed[@]+"${passed[@]}"}; do echo "passed  $line"; done
for line in ${unchecked[@]+"${unchecked[@]}"}; do echo "NOT CHECKED  $line"; done
for line in ${left_out[@]+"${left_out[@]}"}; do echo "NOT RUN  $line: no time was left; hint: make $line"; done
for line in ${failed[@]+"${failed[@]}"}; do echo "FAILED  $line"; done
echo "stages: ${#passed[@]} passed, ${#failed[@]} failed, ${#left_out[@]} not run"
[ ${#failed[@]} = 0 ]
