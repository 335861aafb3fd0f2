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

train() { "$program" train --run "$@" 2>"$work/err" >"$work/out"; }
# The losses that the run in folder $1 has logged.
losses() { grep -o '"step":[0-9]*,"[a-z]*_loss":[0-9.e-]*' "$1/metrics.jsonl"; }

# recomputes_layers OPTIONS...: what "$work/whole" was trained with gives the same with layers recomputed.
recomputes_layers() {
  train "$work/recomputed" "$@" --recompute-layers --max-minutes 0.0000001
  train "$work/recomputed" --resume
  check "--recompute-layers, stopped and resumed, gives the same weights" \
    cmp "$work/whole/weights.safetensors" "$work/recomputed/weights.safetensors"
  check "and the same losses" test "$(losses "$work/whole")" = "$(losses "$work/recomputed")"
  check "and config.json says that layers were recomputed" grep -q '"recompute_layers": true' "$work/recomputed/config.json"
  refuses "changing to recomputed layers on resuming" "--recompute-layers" train --run "$work/whole" --resume --recompute-layers
}
