# What the tests of the programs share; sourced by them, with the program's path as first argument. Counts in
# `passed` and `failed`; "$work" is a folder that goes at the end.
program=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() {  # check NAME CONDITION...
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    [ -f "$work/err" ] && sed 's/^/    /' "$work/err" | tail -5
  fi
}

# refuses NAME PATTERN ARGUMENTS...: exit code 2 and a message that matches.
refuses() {
  local name=$1 pattern=$2 code
  shift 2
  "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "$name: exit code 2 (was $code)" test "$code" = 2
  check "$name: says '$pattern'" grep -qi -- "$pattern" "$work/err"
}
