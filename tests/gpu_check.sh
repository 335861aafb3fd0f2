#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the unit tests and the gradient checks on the GPU, the memory and
# race checks of compute-sanitizer over the kernels' tests, the programs from end to end, beside the CPU, how far
# trainings agree with the CPU's in each precision, and how fast they are, beside PyTorch where there is one. In the order
# of worth where time is short: what is right, then steps, attention, single kernels, decoding and a whole training, in bf16
# before TF32.
# Usage: tests/gpu_check.sh [--built FOLDER] [--device cuda:N] [--python P] [--corpus FILE] [--only REGEX]
#                           [--logs FOLDER] [--steps N] [--jobs N] [--list]
#   --built FOLDER  what is built already, instead of building build/cuda
#   --python P      a Python whose PyTorch sees the GPU, for the ratios; $PYTHON unless given
#   --corpus FILE   what the character model learns, e.g. Tiny Shakespeare; the built-in text unless given
#   --only REGEX    only parts whose names match, e.g. 'agree|steps per'
#   --logs FOLDER   keeps there what each part printed, the runs, and as *.jsonl what the benches recorded
#   --steps N       a rehearsal: N steps of each training, 2 or more
#   --jobs N        N parts at a time where nothing is timed; 1 unless given
#   --list          the parts' names, and nothing else
# A line for each part, then the tables; exit code 0: all passed, 1: some failed, 77: there is no GPU or no nvcc.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C OMP_WAIT_POLICY=passive TAPEFORMER_ALL_CASES=1

folder=build/cuda built= device=cuda python=${PYTHON:-} corpus= only= logs= rehearsed= jobs=1 lists=
while [ $# -gt 0 ]; do
  case $1 in
    --list)
      lists=yes
      shift
      continue
      ;;
    --jobs) jobs=${2:?--jobs needs a number} ;;
    --built) folder=${2:?--built needs a folder} built=yes ;;
    --python) python=${2:?--python needs a program} ;;
    --corpus) corpus=${2:?--corpus needs a file} ;;
    --only) only=${2:?--only needs a regular expression} ;;
    --logs) logs=${2:?--logs needs a folder} ;;
    --steps) rehearsed=${2:?--steps needs a number} ;;
    --device) device=${2:?--device needs a device, e.g. cuda:1} ;;
    *)
      echo "tests/gpu_check.sh: unknown option $1; try --built FOLDER, --device cuda:N, --python P," \
        "--corpus FILE, --only REGEX, --logs FOLDER, --steps N, --jobs N, --list" >&2
      exit 2
      ;;
  esac
  shift 2
done

if [ -n "$corpus" ] && [ ! -f "$corpus" ]; then
  echo "tests/gpu_check.sh: there is no corpus $corpus" >&2
  exit 2
fi
if [ -n "$python" ] && ! "$python" -c 'import torch'; then
  echo "tests/gpu_check.sh: $python has no PyTorch; leave out --python to time ours alone" >&2
  exit 2
fi
steps=${rehearsed:-100}

skip() {
  echo "tests/gpu_check.sh: skipped: $1"
  exit 77
}
PATH=$PATH:/usr/local/cuda/bin
if [ -n "$lists" ]; then
  built=yes
elif command -v nvidia-smi >/dev/null; then
  nvidia-smi -L 2>/dev/null | grep -q '^GPU' || skip "nvidia-smi finds no GPU"
else
  ls /dev/nvidia[0-9]* >/dev/null 2>&1 || skip "there is no NVIDIA GPU here (no nvidia-smi, no /dev/nvidia0)"
fi
if [ -z "$built" ]; then
  command -v nvcc >/dev/null || skip "there is no nvcc on PATH or in /usr/local/cuda/bin"
fi

if [ -n "$logs" ]; then
  mkdir -p "$logs" && work=$(cd "$logs" && pwd) || exit 2
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
rm -rf "$work/lines" "$work/failed"
mkdir -p "$work/lines"
# part NAME COMMAND...: runs it, keeps what it prints to the log, and notes how it ended. While `beside` is set, others may
# run at the same time; alone() waits for them.
number=0 beside=
log_of() { echo "$work/${1//[^A-Za-z0-9]/_}.log"; }
part() {
  [[ $1 =~ $only ]] || return 0
  if [ -n "$lists" ]; then
    echo "$1"
    return
  fi
  number=$((number + 1))
  if [ -n "$beside" ] && [ "$jobs" -gt 1 ]; then
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_part $number "$@" &
  else
    run_part $number "$@"
  fi
}
run_part() {
  local line=$work/lines/$(printf '%03d' "$1") name=$2 log begin=$SECONDS code verdict
  log=$(log_of "$name")
  shift 2
  echo "--- $name"
  "$@" >"$log" 2>&1
  code=$?
  case $code in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    124) verdict="TIMED OUT" && touch "$work/failed" && tail -n 25 "$log" ;;
    *) verdict="FAILED ($code)" && touch "$work/failed" && first_failure "$log" && tail -n 25 "$log" ;;
  esac
  printf '%-46s %-13s %5d s  %s\n' "$name" "$verdict" $((SECONDS - begin)) "$(summary "$log")" | tee "$line"
}
alone() {
  wait
  beside=
}
# After a kernel's fault every case fails that comes behind it: the first one tells.
first_failure() { [ "$(wc -l <"$1")" -lt 40 ] || { grep -m 1 -B 5 -A 6 -E " ERROR: " "$1" && echo ...; }; return 0; }
# The line of a log that says most.
summary() {
  grep -E 'tests passed|checks, |test cases:|ERROR SUMMARY|RACECHECK SUMMARY|differ by|best validation loss|[0-9kM] tokens/s|the card copies|devices|expectations are|skipped:' "$1" |
    tail -n 1 | cut -c1-110
}

build() {
  command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  cmake --preset cuda -B "$folder" && cmake --build "$folder" -j "$(nproc)"
}
[ -n "$built" ] || part "build" build
[ ! -e "$work/failed" ] || exit 1

tests=$folder/tests/tapeformer_tests
on_gpu=(env TAPEFORMER_TEST_DEVICE="$device" TAPEFORMER_CUDA_MEMORY=managed)
if [ -z "$lists" ] && ! "${on_gpu[@]}" "$tests" --test-case=none >"$work/device" 2>&1; then
  skip "$(tail -n 1 "$work/device")"
fi

# Kernels that wait for each other for ever must not keep the rest from its turn: a case that is ended says its name.
tested() { timeout -k 10 1800 "$@"; }
beside=yes
part "kernels in memory of the GPU alone" tested "$tests" --source-file='*/kernels/test_cuda_*,*/autograd/cuda/*'
part "unit tests on the GPU" tested "${on_gpu[@]}" "$tests" --test-case-exclude='slow:*' \
  --source-file='*/tests/autograd/*,*/tests/nn/*,*/tests/optim/*'
part "unit tests in memory of the GPU alone" tested "$tests" \
  --source-file='*test_device*,*test_dispatch*,*test_storage*,*async_readback*,*bf16*,*test_cuda_graph_cache*,*across_devices*'
part "gradient check of every layer, in double" "$folder/examples/gradcheck_attention" --device "$device"
part "trainings agree with the CPU's" "$folder/tests/bench" device_agreement --device "$device" --steps "$steps"

# Small cases of every kernel, since every access is watched.
kernels=(--source-file='*/test_cuda_every_kernel.cpp,*/test_cuda_optim.cpp')
sanitized() {
  command -v compute-sanitizer >/dev/null || { echo "skipped: there is no compute-sanitizer"; return 77; }
  timeout 1800 compute-sanitizer --tool "$1" --error-exitcode 9 "${on_gpu[@]}" "$tests" "${kernels[@]}"
}
part "what the compiler made of the kernels" "${python:-python3}" tests/bench/kernel_report --build "$folder"
part "compute-sanitizer memcheck" sanitized memcheck
part "compute-sanitizer racecheck" sanitized racecheck

# The programs: dropout off, so that both devices see the same numbers.
translation=(--grammar-pairs 2000 --held-out 50 --tokenizer word --width 64 --heads 4 --encoder-layers 2 --decoder-layers 2
  --feed-forward 128 --batch-tokens 512 --dropout 0 --steps "$steps" --warmup $((steps / 5)) --validate-every 50 --samples 0 --log-every 1)
language=(--layers 2 --width 64 --heads 4 --context 64 --batch 16 --dropout 0 --steps "$steps" --warmup $((steps / 5)) --validate-every 50
  --validation-batches 2 --validation-kind estimate --validation-fraction 0.01 --samples 0 --log-every 1)
# trains PROGRAM NAME OPTIONS...
trains() {
  local program=$1 name=$2
  shift 2
  "$folder/examples/$program" train --run "$work/$program-$name" "$@"
}
losses() { sed -n 's/.*"step":\([0-9]*\),"train_loss":\([0-9.e-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
# agree PROGRAM A B MOST: the largest relative difference of two runs' losses, step by step; fails above MOST.
agree() {
  join <(losses "$work/$1-$2" | sort) <(losses "$work/$1-$3" | sort) | awk -v most="$4" -v least="$steps" '
    { d = ($2 - $3) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++steps }
    END { printf "losses of %d steps differ by %.1e at most (allowed: %s)\n", steps, worst, most
          exit !(steps >= least && worst <= most) }'
}
beside=yes
for program in train_translation train_language_model; do
  options=("${language[@]}")
  [ $program = train_translation ] && options=("${translation[@]}")
  part "$program, cpu" trains $program cpu "${options[@]}" --device cpu
  for precision in f32 tf32 bf16; do
    part "$program, GPU, $precision" trains $program $precision "${options[@]}" --device "$device" --precision $precision
  done
  part "$program, GPU, again" trains $program again "${options[@]}" --device "$device"
done
alone
for program in train_translation train_language_model; do
  part "$program: the same bits twice" \
    cmp "$work/$program-f32/weights.safetensors" "$work/$program-again/weights.safetensors"
  # What rounding alone does in a hundred steps of training is well below.
  part "$program: cpu and f32 agree" agree $program cpu f32 0.001
  part "$program: cpu and tf32 agree" agree $program cpu tf32 0.01
  part "$program: cpu and bf16 agree" agree $program cpu bf16 0.05
done

# The first models of the documents, as they are trained there.
# learns RUN PROGRAM OPTIONS...
learns() {
  local run=$work/$1 program=$folder/examples/$2
  shift 2
  "$program" train --run "$run" --device "$device" ${rehearsed:+--steps "$rehearsed" --warmup 1} "$@" || return
  results "$run"
}
# The median of tokens/s over a run's log, and its final losses.
results() {
  sed -n 's/.*"tokens_per_second":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | sort -n |
    awk '{ rate[NR] = $1 } END { if (NR) printf "median %d tokens/s; ", rate[int((NR + 1) / 2)] }'
  sed -n 's/.*"train_loss":\([0-9.e-]*\).*/training loss \1; /p' "$1/metrics.jsonl" | tail -n 1 | tr -d '\n'
  sed -n 's/.*"step":\([0-9]*\).*"validation_loss":\([0-9.e-]*\).*/validation loss \2 after \1 steps/p' \
    "$1/metrics.jsonl" | tail -n 1
}
# Steps of the benches' models, beside PyTorch's in turn, or alone.
within() { timeout --foreground 590 "$@"; }  # a command on a machine that is lent by ten minutes
workloads=(gpt2-124m-h200 babygpt chargpt translate translate-base gpt2-124m-1k) small=(babygpt chargpt translate)
[ -z "$rehearsed" ] || { workloads=(babygpt:1) small=(babygpt:1); }
# steps PRECISION ROUNDS OPTIONS...: of all workloads, or with --graphs of those whose launches take most of a step.
steps() {
  local precision=$1 rounds=$2 chosen=("${workloads[@]}") code
  shift 2
  if [ -n "$python" ]; then
    [[ " $* " != *" --graphs "* ]] || chosen=("${small[@]}")
    within "$python" tests/bench/compare_with_pytorch --python "$python" --build "$folder" --device "$device" \
      --workloads "${chosen[@]}" ${rehearsed:+--steps "$rehearsed"} --seconds 3 --precision "$precision" --rounds "$rounds" "$@" \
      --record "$work/steps.jsonl"
    code=$?
    [ $code = 77 ] || return $code
  fi
  if [[ " $* " == *" --no-eager "* ]]; then
    echo "skipped: without PyTorch: name a Python that has it with --python"
    return 77
  fi
  echo "without PyTorch's times: name a Python that has it with --python"
  within "$folder/tests/bench" train_step "${chosen[@]}" --device "$device" --precision "$precision" --seconds 3 \
    ${rehearsed:+--steps "$rehearsed"} |
    sed -E 's/.*"workload":"([^"]*)".*"dtype":"([^"]*)".*"ms":([0-9.]*),"tokens_per_s":([0-9]*).*"peak_device_mib":([0-9]*).*/\1 \2 \3 \4 \5/' |
    awk '{ printf "%-14s %-5s %9.2f ms a step %9d tokens/s %7d MiB\n", $1, $2, $3, $4, $5 }'
}
# operations OPTIONS...: single operations, ours and PyTorch's in turn, or ours alone.
operations() {
  within "${python:-python3}" tests/bench/compare_ops --device "$device" --build "$folder" ${python:+--python "$python"} \
    ${rehearsed:+--tiny} --rounds 2 --seconds 0.1 "$@" >>"$work/operations.jsonl"
}
# Tokens a second: of a translation model, and of language models, ours and PyTorch's in turn, or ours alone.
decoding() {
  within "$folder/tests/bench" decoding ${rehearsed:+--width 16 --layers 1 --batch 2} --tokens 24 --only contiguous --rounds 3 \
    --device "$device" --precision "$1" || return
  if [ -n "$python" ] && [ -z "$rehearsed" ]; then
    within "$python" tests/bench/torch_generation.py --build "$folder" --device "$device" --precision "$1" --streams 1 64 --rounds 3 |
      tee -a "$work/decoding.jsonl"
    local code=$?
    [ $code = 77 ] || return $code
  fi
  echo "without PyTorch's times"
  local models=(character gpt2-124m) model streams
  [ -z "$rehearsed" ] || models=(tiny)
  for model in "${models[@]}"; do
    for streams in 1 ${rehearsed:-64}; do
      within "$folder/tests/bench" decoding --language "$model" --batch "$streams" --only contiguous --rounds 3 \
        --device "$device" --precision "$1" || return
    done
  done
}
# The character model of nanoGPT's recipe, on Tiny Shakespeare.
recipe() {
  [ -n "$corpus" ] || { echo "skipped: name Tiny Shakespeare with --corpus"; return 77; }
  local run=$work/recipe begin=$SECONDS
  rm -rf "$run"
  within "$folder/examples/train_language_model" train --run "$run" --device "$device" --preset shakespeare-char \
    --corpus "$corpus" --precision bf16 ${rehearsed:+--steps "$rehearsed" --warmup 1} || return
  local taken=$((SECONDS - begin))
  results "$run"
  sed -n 's/.*"validation_loss":\([0-9.e-]*\).*/\1/p' "$run/metrics.jsonl" | sort -g | head -n 1 |
    sed "s/.*/best validation loss & (the aim: 1.48 at most) in $taken s/"
}
part "steps beside PyTorch, bf16" steps bf16 2 --no-compile
part "steps beside compiled PyTorch, bf16" steps bf16 1 --no-eager  # compiling takes most of the time
part "steps beside PyTorch's graphs, bf16" steps bf16 1 --no-eager --no-compile --graphs
part "attention beside PyTorch's, bf16" operations --dtype bf16 --attention
part "single kernels, bf16" operations --dtype bf16
part "decoding, bf16" decoding bf16
part "nanoGPT's recipe, bf16" recipe
part "steps beside PyTorch, tf32" steps tf32 2 --no-compile
part "steps beside compiled PyTorch, tf32" steps tf32 1 --no-eager
part "single kernels, tf32" operations --dtype tf32
part "decoding, f32" decoding f32
for precision in f32 tf32 bf16; do
  part "quickstart's model, GPU, $precision" learns "quickstart-$precision" train_translation --precision $precision
  part "character model, GPU, $precision" learns "characters-$precision" train_language_model \
    --preset shakespeare-char-cpu ${corpus:+--corpus "$corpus"} --precision $precision
done
[ -z "$lists" ] || exit 0

# Of what has run now.
show() {
  [[ $1 =~ $only ]] || return 0
  [ ! -e "$(log_of "$1")" ] || { echo && echo "$1" && grep -vE '(ours|graphs|PyTorch|compiled): [0-9.]+ ms$|^\{' "$(log_of "$1")"; }
}
show "gradient check of every layer, in double"
show "trainings agree with the CPU's"
for precision in bf16 tf32; do
  show "steps beside PyTorch, $precision"
  show "steps beside compiled PyTorch, $precision"
  show "steps beside PyTorch's graphs, $precision"
done
show "attention beside PyTorch's, bf16"
show "single kernels, bf16"
show "single kernels, tf32"
for precision in bf16 f32; do  # records are all that it prints
  [[ "decoding, $precision" =~ $only ]] && [ -e "$(log_of "decoding, $precision")" ] && { echo && cat "$(log_of "decoding, $precision")"; }
done
echo
cat "$work"/lines/* 2>/dev/null
[ ! -e "$work/failed" ]
