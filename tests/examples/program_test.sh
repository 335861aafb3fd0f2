# Functions that the tests of the programs share; sourced by them, with the program's path as first argument. Counts
# in `passed` and `failed`; "$work" is a folder that is removed at the end.
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

# The program's name in messages.
called=$(basename "$program" | sed 's/_\(emulated\|sanitized\)$//')

# The refusals and their messages, next to the program; where nothing is refused there is no such file.
table=$(dirname "$program")/bad_input_$(basename "$0" .sh).md
rm -f "$table"

# note_refusal NAME CODE ARGUMENTS...: a row of the table, with the contents of "$work/err".
note_refusal() {
  local name=$1 code=$2
  shift 2
  [ -e "$table" ] || printf '| bad input | command line | exit code | message |\n|---|---|---|---|\n' >"$table"
  {
    printf '%s\037%s\037%s\037' "$name" "$*" "$code"
    sed -n "/^$called: /,\$p" "$work/err"
  } | LC_ALL=C tr '\n' ' ' | sed "s#$work/*#DIR/#g; s/|/\\\\|/g; s/\o037/ | /g; s/^/| /; s/ *\$/ |\n/" >>"$table"
}

# says_why: one message, and not in the words of a library.
says_why() {
  test "$(grep -ac "^$called: " "$work/err")" = 1 &&
    ! grep -aqE 'json\.exception|std::|basic_string|vector::|terminate called|runtime error|AddressSanitizer' "$work/err"
}

# ends NAME CODE ARGUMENTS...: the program ends with this code, which is then in `code`; its output is in out and err.
ends() {
  local name=$1 expected=$2
  shift 2
  "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "$name: exit code $expected (was $code)" test "$code" = "$expected"
}
does() { ends "$1" 0 "${@:2}"; }                # does NAME ARGUMENTS...
trains() { ends "$1" 0 train --run "${@:2}"; }  # trains NAME FOLDER OPTIONS...

# refuses NAME PATTERN ARGUMENTS...: exit code 2 and one message that matches.
refuses() {
  local name=$1 pattern=$2
  shift 2
  ends "$name" 2 "$@"
  check "$name: says '$pattern'" grep -qi -- "$pattern" "$work/err"
  check "$name: in one message of its own" says_why
  note_refusal "$name" "$code" "$@"
}

# refuses_damaged NAME PATTERN CHANGE COMMAND OPTIONS...: refuses a copy of the run in `intact` after CHANGE, shell commands
# within it.
refuses_damaged() {
  rm -rf "$work/damaged" && cp -r "$intact" "$work/damaged"
  (cd "$work/damaged" && eval "$3")
  refuses "$1" "$2" "$4" --run "$work/damaged" "${@:5}"
}

# field NAME VALUE: sets a number in config.json.
field() { sed -i "s/\"$1\": [0-9][0-9]*/\"$1\": $2/" config.json; }
# claims_a_terabyte FILE: it takes no space.
claims_a_terabyte() { truncate -s 1T "$1"; }

train() { "$program" train --run "$@" 2>"$work/err" >"$work/out"; }
# logs NAME PATTERN FOLDER OPTIONS...: a line of a training's log matches.
logs() { train "${@:3}"; check "$1" grep -q -- "$2" "$work/err"; }
# prints NAME PATTERN ARGUMENTS...: a line of the program's output matches.
prints() { "$program" "${@:3}" >"$work/out" 2>"$work/err" </dev/null; check "$1" grep -q -- "$2" "$work/out"; }
# The losses that the run in folder $1 has logged.
losses() { grep -o '"step":[0-9]*,"[a-z]*_loss":[0-9.e-]*' "$1/metrics.jsonl"; }

# alike A B MOST: two texts are the same but for their numbers, which differ by at most MOST of themselves or of 1.
alike() {
  paste -d '\n' "$1" "$2" | sed 's/[0-9.][-+0-9.e]*/ & /g' | awk -v most="$3" '
    NR % 2 { count = split($0, before, " "); next }
    {
      if (split($0, words, " ") != count) exit bad = 1
      for (i = 1; i <= count; ++i) {
        if (words[i] == before[i]) continue
        if (words[i] !~ /^[0-9.]/ || before[i] !~ /^[0-9.]/) exit bad = 1
        size = before[i] > 1 ? before[i] : 1
        if (words[i] - before[i] > most * size || before[i] - words[i] > most * size) exit bad = 1
      }
    }
    END { exit bad || NR == 0 || NR % 2 }'
}

# differ A B: two texts, neither of them empty, which is what a program leaves that fails.
differ() { test -s "$1" -a -s "$2" && ! cmp -s "$1" "$2"; }

# mostly A B: of at least four lines in each of two files at most a quarter differ. Where two tokens are equally likely
# apart from rounding, either may come; tests/nn compares in double, without such cases.
mostly() {
  paste -d '\n' "$1" "$2" | awk '
    NR % 2 { before = $0; next }
    $0 != before { ++others }
    END { exit NR < 8 || others * 8 > NR }'
}
# Samples, each on one line.
in_lines() { tr '\n' ' ' | sed 's/---------------/\n/g'; }

# interrupts_training FOLDER OPTIONS...: begins a training there and ends it by a signal in the middle; its exit code
# is then in `code`. Where all steps are done before the signal comes, it begins again.
interrupts_training() {
  local folder=$1
  shift
  for _ in $(seq 20); do
    rm -rf "$folder"
    "$program" train --run "$folder" "$@" >/dev/null 2>"$work/err" &
    local victim=$!
    while kill -0 $victim 2>/dev/null && ! grep -q '"step":10' "$folder/metrics.jsonl" 2>/dev/null; do sleep 0.002; done
    kill -TERM $victim 2>/dev/null
    wait $victim 2>/dev/null
    code=$?
    test $code != 0 && return
  done
}

# keeps_others_out READ OPTIONS...: while a model is trained in a folder, no other one may be, but others may read: the command READ
# is given the folder.
keeps_others_out() {
  local read=$1 run="$work/held"
  shift
  "$program" train --run "$run" "$@" --steps 10000000 >/dev/null 2>&1 &
  local victim=$!
  until [ -s "$run/weights.safetensors" ] || ! kill -0 $victim 2>/dev/null; do sleep 0.01; done
  refuses "resuming a run that is being trained" "is in use by process $victim on .*; wait until" \
    train --run "$run" --resume --max-minutes 0.0000001
  check "it is read meanwhile" $read "$run"
  kill -KILL $victim
  wait $victim 2>/dev/null
}

# recomputes_layers OPTIONS...: with these options of "$work/whole", recomputing layers gives the same weights after a pause too.
recomputes_layers() {
  train "$work/recomputed" "$@" --recompute-layers --max-minutes 0.0000001
  train "$work/recomputed" --resume
  check "--recompute-layers, stopped and resumed, gives the same weights" \
    cmp "$work/whole/weights.safetensors" "$work/recomputed/weights.safetensors"
  refuses "changing to recomputed layers on resuming" "--recompute-layers" train --run "$work/whole" --resume --recompute-layers
}

# summarises OPTIONS...: with these "$work/whole" was trained.
summarises() {
  trains "--summary of a new training" "$work/summed" "$@" --summary
  mv "$work/out" "$work/summary"
  check "it is not empty" test -s "$work/summary"
  check "--summary leaves no folder" test ! -e "$work/summed"
  train "$work/whole" --resume --summary
  check "--summary of a run is the same" cmp "$work/out" "$work/summary"
  "$program" evaluate --run "$work/whole" --summary >"$work/out" 2>"$work/err"
  check "--summary of evaluate is the same" cmp "$work/out" "$work/summary"
  refuses "JSON of a summary" "--json has no effect with --summary" evaluate --run "$work/whole" --summary --json
  train "$work/summed" "$@" --freeze '*norm.weight' --summary
  check "it says what --freeze freezes" test "$(grep -c '  frozen$' "$work/out")" = "$(grep -c 'norm\.weight' "$work/summary")"
  refuses "freezing nothing" "\[freeze\] a pattern must match a parameter; got norm; the names are " \
    train --run "$work/summed" "$@" --freeze norm
  "$program" fields >"$work/out" 2>"$work/err"
  check "fields prints the model's fields and the options" test "$(grep -c '^| `dropout` \|^| `seed` ' "$work/out")" -ge 2
}

# reports OPTIONS...: on "$work/whole", which was trained with these; the dry run of another, and refusals.
reports() {
  check "a training leaves a report" grep -q '"validation_loss":{"step":\[' "$work/whole/report.html"
  "$program" report "$work/whole" --output "$work/report.html" >"$work/out" 2>"$work/err"
  check "report says what it has written" test "$(cat "$work/out")" = "$work/report.html" -a -s "$work/report.html"
  "$program" report "$work/whole" --output "$work/page" >"$work/page" 2>"$work/err"
  check "report does not replace standard output" grep -q 'page: cannot be replaced: it is standard output' "$work/err"
  train "$work/compared" "$@" --steps 20 --learning-rate 0.125
  prints "compare tells two runs apart" '^learning rate .* 0.125$' compare "$work/whole" "$work/compared"
  prints "compare --json" '"best_validation_loss": [0-9]' compare --json "$work/whole" "$work/compared"
  "$program" compare "$work/whole" >/dev/full 2>"$work/err"
  check "output that cannot be written: exit code 2" test $? = 2
  check "which is named" grep -q "standard output: cannot be written: No space" "$work/err"
  cp -r "$work/compared" "$work/uncompared" && echo '{' >"$work/uncompared/config.json"
  refuses "comparing with a damaged run" "uncompared/config.json" compare "$work/whole" "$work/uncompared"
  refuses "a report of what is not a run" "$work/none: is not a folder" report "$work/whole" "$work/none"
  train "$work/dry" "$@" --dry-run
  mv "$work/out" "$work/dry-run"
  check "--dry-run says what a run takes" grep -q '^the run  *60 steps in about ' "$work/dry-run"
  check "and its memory" grep -q '^memory: activations *[0-9.]* [KM]iB$' "$work/dry-run"
  check "--dry-run makes no folder" test ! -e "$work/dry"
  refuses "a dry run in the folder of a training" "holds a run already" train --run "$work/whole" "$@" --dry-run
}

# sweeps OPTIONS...: a sweep over two rates with these options of train stops, resumes, repeats nothing, and names the best.
sweeps() {
  local rows best victim sweep=("$program" sweep --runs "$work/sweep" --vary learning-rate 1e-3 3e-2)
  "${sweep[@]}" --seeds 1 -- "$@" >"$work/out" 2>"$work/err" &
  victim=$!
  until [ -s "$work/sweep/learning-rate=1e-3/seed-1/config.json" ] || ! kill -0 $victim 2>/dev/null; do sleep 0.002; done
  kill -TERM $victim 2>/dev/null
  wait $victim
  check "a sweep that is stopped ends with 130" test $? = 130
  check "and says how to go on" grep -q 'of 2 runs are left: the same command continues' "$work/err"
  "${sweep[@]}" --seeds 1 -- "$@" >"$work/out" 2>"$work/err"
  check "the same command goes on" test $? = 0
  before=$(stat -c %y "$work"/sweep/*/seed-1/weights.safetensors)
  "${sweep[@]}" --seeds 2 -- "$@" >"$work/out" 2>"$work/err"
  check "more seeds repeat nothing" test "$before" = "$(stat -c %y "$work"/sweep/*/seed-1/weights.safetensors)"
  check "a sweep prints a row for each combination" test "$(grep -c '^| learning-rate=.* | 2 | [0-9.]* | [0-9.]* | ' "$work/out")" = 2
  best=$(sed -n 's/^best: //p' "$work/out")
  rows=$(awk -F '|' '/^\| learning/ { print $4, $2 }' "$work/out" | LC_ALL=C sort -g | head -n 1)
  check "and names the best" test "$best" = "$(echo "$rows" | awk '{ print $2 }')"
  "$program" train --run "$work/alone" --seed 2 "$@" "--$best" >"$work/out" 2>"$work/err"
  check "whose options give its weights" cmp "$work/alone/weights.safetensors" "$work/sweep/$best/seed-2/weights.safetensors"
  ends "a sweep of which one run diverges" 2 sweep --runs "$work/diverging" --seeds 1 --vary learning-rate 1e-3 1e30 -- "$@" \
    --clip 0 --schedule constant --steps 20
  check "says that it is not the others that are left" sh -c "grep -q '^1 of 2 runs failed' '$work/err' && ! grep -q 'are left' '$work/err'"
  refuses "a sweep with other options in its folder" "holds runs with other options" \
    sweep --runs "$work/sweep" --vary learning-rate 1e-3 -- "$@" --samples 0
  refuses "a sweep of what is not an option" "unknown option --learning-rat" \
    sweep --runs "$work/mistaken" --vary learning-rat 1e-3 -- "$@"
  check "has not settled the options there" test ! -e "$work/mistaken/options.json"
  refuses "seeds in the options of a sweep" "--seed has no place in a sweep" \
    sweep --runs "$work/mistaken" --vary dropout 0 0.1 -- --seed 3
  refuses "a sweep of seeds" "--seed has no place in a sweep" sweep --runs "$work/mistaken" --vary seed 1 2
  refuses "a sweep in a file" "err: cannot be made" sweep --runs "$work/err" --vary dropout 0 0.1
}

# resumes_to_the_same OPTIONS... -- FILES...: "$work/whole", the whole training, and the same after Ctrl-C; the FILES
# are equal byte for byte.
resumes_to_the_same() {
  local options=() file
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  trains "a training ends well" "$work/whole" "${options[@]}"
  cp "$work/err" "$work/err.whole"
  check "the best weights are there" test -s "$work/whole/weights.safetensors"
  check "metrics are JSON lines with validation losses" grep -q '"validation_loss"' "$work/whole/metrics.jsonl"
  interrupts_training "$work/stopped" "${options[@]}"
  check "Ctrl-C ends with 130" test $code = 130
  check "Ctrl-C says how to go on" grep -q -- "$called train --run .* --resume" "$work/err"
  check "Ctrl-C says at once what it waits for" \
    grep -q 'finishing this \(batch\|validation\), then saving; Ctrl-C again quits without saving' "$work/err"
  trains "a stopped training resumes" "$work/stopped" --resume --profile 3
  check "--profile shows the operations' rates" grep -q '^linear  *backward .* %$' "$work/err" "$work/out"
  check "and writes their timeline" grep -q '"name":"linear"' "$work/stopped/trace.json"
  for file in weights.safetensors weights-40.safetensors weights-60.safetensors checkpoint.safetensors config.json "$@"; do
    check "after Ctrl-C and resuming, $file is the uninterrupted run's, byte for byte" cmp "$work/whole/$file" "$work/stopped/$file"
  done
  check "and so are the losses in metrics.jsonl" test "$(losses "$work/whole")" = "$(losses "$work/stopped")"
  check "--keep-checkpoints keeps the last two" test "$(ls "$work/whole" | grep -c 'weights-')" = 2
  logs "resuming a finished training says so" finished "$work/stopped" --resume
  local resumed=(train --run "$work/stopped" --resume)
  refuses "going on to a step that is done" "--steps must be above 60" "${resumed[@]}" --steps 60
  refuses "going on to no step" "--steps must be positive; got 0" "${resumed[@]}" --steps 0
  refuses "changing another option" "--clip cannot be changed, only --steps" "${resumed[@]}" --steps 70 --clip 2
}

# refuses_bad_options OPTIONS...: refusals of train in every program; "$work/whole" was trained with these.
refuses_bad_options() {
  local new=(train --run "$work/new")
  refuses "width not divisible by heads" "divisible" "${new[@]}" "$@" --width 33
  refuses "another program's name of an option" "unknown option --lr; did you mean --learning-rate" "${new[@]}" --lr 1e-3
  refuses "a beta of one" "beta1" "${new[@]}" --beta1 1
  refuses "more warm-up than steps" "--warmup" "${new[@]}" --steps 5 --warmup 10
  refuses "fine-tuning nothing" "nothere: is not a folder" "${new[@]}" --from "$work/nothere"
  refuses "a GPU that is not there" "no cuda:99: .*; try cpu" "${new[@]}" --device cuda:99
  refuses "evaluating in tf32 on the cpu" "needs a GPU" evaluate --run "$work/whole" --device cpu --precision tf32
  refuses "a number of threads that is none" "--threads" evaluate --run "$work/whole" --threads 100000
  check "refused runs leave no folder behind" test ! -e "$work/new"
  refuses "an unwritable folder" "cannot be made" train --run /dev/null/run "$@"
  refuses "a folder that holds a training" "--resume" train --run "$work/whole" "$@"
  refuses "resuming with other options" "--width" train --run "$work/whole" --resume --width 32
  refuses "resuming nothing" "no checkpoint" "${new[@]}" --resume
  refuses "a learning rate that diverges" "step .*learning-rate" train --run "$work/diverged" "$@" \
    --learning-rate 1e30 --clip 0 --schedule constant
  check "a diverged training keeps its last good checkpoint" \
    sh -c "'$program' train --run '$work/diverged' --resume 2>&1 | grep -q 'resumed at step'"
}

# The last line of a test.
ends_here() {
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
}
