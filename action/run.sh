#!/usr/bin/env bash
# Runs a plan, gates it and writes report.html, gate.xml and gate.txt. Reads UNRULY_* from the
# environment, as action.yml sets them; every CI can call it. Exit codes are those of `unruly gate`:
# 0 held, 1 broken or spoiled, 2 error, 3 undecided (0 when UNRULY_UNDECIDED is warn).
set -euo pipefail

limits=${UNRULY_LIMITS:-}
output=${UNRULY_OUTPUT:-unruly}
undecided=${UNRULY_UNDECIDED:-warn}
program=${UNRULY_PROGRAM:-}
[ -n "$program" ] || program=$(cd "$(dirname "$0")/.." && pwd)/target/release/unruly
run=$output/run

say() { # the step's outputs, where GitHub asks for them
  if [ -n "${GITHUB_OUTPUT:-}" ]; then printf 'outcome=%s\ncode=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; fi
}

fail() {
  echo "::error::$1"
  say error 2
  exit 2
}

[ -n "$limits" ] || fail "limits: is not given; expected a TOML file of [[limit]] tables"
case $undecided in warn | fail) ;; *) fail "undecided: is '$undecided'; expected warn or fail" ;; esac
mkdir -p "$output"

if [ -n "${UNRULY_PLAN:-}" ]; then
  arguments=()
  while read -r line; do
    if [[ $line =~ ^--[a-z-]+=[^=]*\ [^-] ]]; then
      arguments+=("$line") # one option, whose value has spaces
    else
      read -r -a words <<<"$line"
      arguments+=("${words[@]}")
    fi
  done <<<"${UNRULY_ARGUMENTS:-}"
  # 1 is a finding about the run, which the gate judges
  "$program" run "$UNRULY_PLAN" "${arguments[@]}" --quiet --output "$run" || [ $? -eq 1 ] ||
    fail "the run of $UNRULY_PLAN failed"
fi

code=0
"$program" gate "$run" "$limits" --junit "$output/gate.xml" --width 100 >"$output/gate.txt" ||
  code=$?
cat "$output/gate.txt"
"$program" report "$run" --output "$output/report.html" ||
  echo "::warning::the report of $run could not be written"

if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  { echo '### unruly gate'; echo '```'; cat "$output/gate.txt"; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
fi

case $code in
0) say held 0 ;;
1) say broken 1 && echo "::error::a limit on latency or failures is broken, or the run is spoiled" ;;
3)
  say undecided 3
  if [ "$undecided" = warn ]; then
    echo "::warning::a limit is undecided: the run was too short for it, see gate.txt"
    exit 0
  fi
  echo "::error::a limit is undecided: the run was too short for it, see gate.txt"
  ;;
*) say error "$code" && echo "::error::unruly gate ended with an error" ;;
esac
exit "$code"
