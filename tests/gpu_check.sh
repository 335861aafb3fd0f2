#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the unit tests and the gradient checks on the GPU, the memory and
# race checks of compute-sanitizer over the kernels' tests, the programs from end to end, beside the CPU, how far
# runs agree with the CPU's in each precision, and how fast they are, beside PyTorch where there is one. In the order
# of worth where time is short: what is right, then steps, attention, single kernels, decoding and a whole training, in bf16
# before TF32. Should the kernels for Hopper be wrong or hang, the rest goes on without them.
# Usage: tests/gpu_check.sh [--built FOLDER] [--device cuda:N] [--python P] [--corpus FILE] [--only REGEX] [--set A|B|C]
#                           [--minutes M] [--logs FOLDER] [--results FOLDER] [--steps N] [--list]
#   --built FOLDER    what is built already, instead of building build/cuda
#   --python P        a Python whose PyTorch sees the GPU, for the ratios; $PYTHON unless given
#   --corpus FILE     what the character model learns, e.g. Tiny Shakespeare; the built-in text unless given
#   --only REGEX      only parts whose names match, after the build, e.g. 'agree|steps per'
#   --set A|B|C       a choice of parts that fits into nine minutes, with --built. A: is it right; B: is it fast; C: why
#   --minutes M       all of it ends by then; 9 with --set, else each part has a limit of its own alone
#   --logs FOLDER     keeps there what each part printed, the runs, and as *.jsonl what the benches recorded
#   --results FOLDER  keeps there, from part to part, the little that is worth carrying away: the table of parts, one log of
#                     all, and the records; eight files of at most 16 MiB
#   --steps N         a rehearsal: N steps of each training, 2 or more
#   --list            the parts' sets, limits and names, and nothing else
# A line for each part, then the tables; exit code 0: all passed, 1: some failed, 2: the options
# are mistaken or no part has run, 77: there is no GPU or no nvcc.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/gpu_parts.sh
export LC_ALL=C OMP_WAIT_POLICY=passive

folder=build/cuda built='' device=cuda python=${PYTHON:-} corpus='' only='' set='' minutes='' logs='' results='' rehearsed='' lists=''
refuse() {
  echo "tests/gpu_check.sh: $1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --list)
      lists=yes
      shift
      continue
      ;;
    --built) folder=${2:?--built needs a folder} built=yes ;;
    --python) python=${2:?--python needs a program} ;;
    --corpus) corpus=${2:?--corpus needs a file} ;;
    --only) only=${2:?--only needs a regular expression} ;;
    --set) set=${2:?--set needs A, B or C} ;;
    --minutes) minutes=${2:?--minutes needs a number} ;;
    --logs) logs=${2:?--logs needs a folder} ;;
    --results) results=${2:?--results needs a folder} ;;
    --steps) rehearsed=${2:?--steps needs a number} ;;
    --device) device=${2:?--device needs a device, e.g. cuda:1} ;;
    *)
      refuse "unknown option $1; try --built FOLDER, --device cuda:N, --python P, --corpus FILE, --only REGEX, --set A|B|C, \
--minutes M, --logs FOLDER, --results FOLDER, --steps N, --list"
      ;;
  esac
  shift 2
done

[[ $set =~ ^[ABC]?$ ]] || refuse "--set must be A, B or C; got $set"
[[ $minutes =~ ^([1-9][0-9]*)?$ ]] || refuse "--minutes must be a whole number from 1; got $minutes"
[ -z "$set" ] || minutes=${minutes:-9}
[ -z "$set" ] || [ -n "$built$lists" ] || refuse "--set leaves no time to build; build first, and add --built build/cuda"
[ -n "$set" ] || export TAPEFORMER_ALL_CASES=1
[ -z "$corpus" ] || [ -f "$corpus" ] || refuse "there is no corpus $corpus"
if [ -n "$python" ] && ! timeout 120 "$python" -c 'import torch' 2>/dev/null; then
  refuse "$python has no PyTorch; leave out --python to time ours alone"
fi
steps=${rehearsed:-$([ -z "$set" ] && echo 100 || echo 50)}

skip() {
  echo "tests/gpu_check.sh: skipped: $1"
  exit 77
}
PATH=$PATH:/usr/local/cuda/bin
if [ -z "$built$lists" ]; then
  if command -v nvidia-smi >/dev/null; then
    timeout 60 nvidia-smi -L 2>/dev/null | grep -q '^GPU' || skip "nvidia-smi finds no GPU"
  else
    ls /dev/nvidia[0-9]* >/dev/null 2>&1 || skip "there is no NVIDIA GPU here (no nvidia-smi, no /dev/nvidia0)"
  fi
  command -v nvcc >/dev/null || skip "there is no nvcc on PATH or in /usr/local/cuda/bin"
fi

if [ -n "$logs" ]; then
  mkdir -p "$logs" && work=$(cd "$logs" && pwd) || exit 2
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
[ -z "$results" ] || mkdir -p "$results" || exit 2
rm -rf "$work/lines" "$work/failed"
mkdir -p "$work/lines"

build() {
  command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  cmake --preset cuda -B "$folder" && cmake --build "$folder" -j "$(nproc)"
}
[ -n "$built" ] || only='' part - 7200 "build" build
[ ! -e "$work/failed" ] || exit 1
have_run=()

tests=$folder/tests/tapeformer_tests bench=$folder/tests/bench
if [ -z "$lists" ] && ! limited 60 env TAPEFORMER_TEST_DEVICE="$device" "$tests" --test-case=none >"$work/device" 2>&1; then
  skip "$(tail -n 1 "$work/device")"
fi

# The machine, for the tables' heads.
machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader || echo "no nvidia-smi"
  uname -sr
  grep -m 1 'model name' /proc/cpuinfo
  nproc
  [ -z "$python" ] || "$python" -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)'
}
part ABC 30 "the machine" machine
if [ -n "$results" ] && command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu --format=csv,noheader -l 2 >"$results/clocks.csv" 2>&1 &
  trap "kill $! 2>/dev/null; $(trap -p EXIT | sed "s/^trap -- '\(.*\)' EXIT$/\1/")" EXIT
fi
jobs=$(($(nproc) < 12 ? $(nproc) : 12))
# cases_in FILE FILTER...: in a process of its own. If it fails, so does each of its cases, as after a fault of the card
# all later cases fail.
cases_in() {
  local file=$1 name=${1##*tests/} begin=$SECONDS count i code=0
  local log="$outputs/${name//\//_}"
  shift
  timeout --foreground -k 2 "$longest" "$tests" "$@" --source-file="$file" >"$log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    echo "$name: $((SECONDS - begin)) s, $(grep -a '^\[doctest\] test cases' "$log" || tail -n 1 "$log")"
    return
  fi
  [ $code = 124 ] && echo "$name: TIMED OUT after $longest s" || echo "$name: FAILED ($code)"
  count=$("$tests" "$@" --source-file="$file" --count | grep -ao '[0-9]*$')
  for ((i = 1; i <= count; ++i)); do
    timeout --foreground -k 2 "$longest" "$tests" "$@" --source-file="$file" --first=$i --last=$i >"$log" 2>&1 || {
      echo "$name, case $i: exit code $?"
      head -c 4000 "$log"
    }
  done
  return 1
}
export tests outputs=$work/outputs longest=60
export -f cases_in
# cases SOURCES [OPTION...]: the cases of these files, the files in parallel; fails if there is none.
cases() {
  mkdir -p "$outputs"
  local filters=(--source-file="$1" --test-case-exclude='slow:*' "${@:2}")
  "$tests" --list-test-cases --reporters=xml "${filters[@]}" | sed -n 's/.* filename="\([^"]*\)".*/\1/p' | sort -u | grep . |
    OMP_NUM_THREADS=2 xargs -d '\n' -P "$jobs" -I{} bash -c 'cases_in "$@"' - {} "${filters[@]}"
}
# sanitized TOOL CASES...: every access is watched, so small cases.
sanitized() {
  command -v compute-sanitizer >/dev/null || { echo "skipped: there is no compute-sanitizer"; return 77; }
  compute-sanitizer --tool "$1" --error-exitcode 9 "$tests" --test-case-exclude='slow:*' "${@:2}"
}
if ! part A 60 "attention's kernels for Hopper" cases '*/test_cuda_attention_hopper*' && [ -z "$lists" ]; then
  export TAPEFORMER_ATTENTION=tensor_cores
  echo "The kernels for Hopper are left out from here on: TAPEFORMER_ATTENTION=tensor_cores" | tee "$work/lines/$(printf '%03d' "$number")_hopper"
  part A 60 "memcheck of Hopper's kernels" sanitized memcheck --source-file='*/test_cuda_attention_hopper*' --last=1
fi
part A 90 "the other kernels" cases '*/kernels/test_cuda_*' --source-file-exclude='*_hopper*'
# our_steps PRECISION WORKLOADS...: only ours.
our_steps() {
  local precision=$1 workload
  for workload in "${@:2}"; do
    "$bench" train_step "$workload" --device "$device" --precision "$precision" --seconds 3 ${rehearsed:+--steps "$rehearsed"} || return
  done
}
# times_of SIZES OPERATION...: of passes of attention.
times_of() {
  local sizes=$1
  shift
  "$bench" ops --device "$device" --dtype bf16 --seconds 0.1 ${rehearsed:+--tiny} "${@/%/ $sizes}" |
    sed -E 's/.*"operation": "([^"]*)".*"ms": ([0-9.]*), "GFLOP\/s": ([0-9.e+]*).*/\1 \2 \3/' |
    awk '{ printf "%-27s B %d, H %d, T %d, D %d %9.3f ms %9.1f TFLOP/s\n", $1, $2, $3, $4, $5, $6, $7 / 1000 }'
}
# The first figures: two models, and attention of two widths.
first_figures() {
  local models=(babygpt gpt2-124m-h200) shape shapes=("64 12 1024 64" "4 48 4096 128")
  [ -z "$rehearsed" ] || models=(babygpt:1) shapes=("1 2 40 64")
  our_steps bf16 "${models[@]}"
  for shape in "${shapes[@]}"; do
    times_of "$shape" attention_forward attention_backward
  done
}
part A 100 "first figures, bf16" first_figures
part A 60 "runs agree with the CPU's" "$bench" device_agreement --device "$device" --steps "$steps"
# They fill the card's memory. All kernels are loaded before: a graph must not be the first to use one.
CUDA_MODULE_LOADING=EAGER jobs=1 part A 60 "graphs and full memory" cases '*/cuda/test_graphs*,*/cuda/test_arena*,*/test_cuda_graph_cache*'
part A 60 "memory, copies, faults of the card, and NCCL" \
  cases '*/autograd/cuda/test_*,*/communication/test_nccl*' --source-file-exclude='*/test_graphs*,*/test_arena*'
part A 60 "tensors in memory of the GPU alone" \
  cases '*/test_device*,*/test_dispatch*,*/test_storage*,*/test_async_readback*,*bf16*,*/test_across_devices*'
# check_layer NAME PROGRAM DEVICE; gradients: of all layers, several in parallel, as single ones leave the card idle.
check_layer() {
  local log="$outputs/gradcheck_$1"
  "$2" --layer "$1" --device "$3" --elements 4 >"$log" 2>&1 && echo "$1: $(tail -n 1 "$log")" && return
  echo "$1: FAILED"
  grep -v PASS "$log"
  return 1
}
export -f check_layer
gradients() {
  mkdir -p "$outputs"
  "$folder/examples/gradcheck_attention" --list | sed -n 's/^\([^ ,][^,]*\).*/\1/p' |
    OMP_NUM_THREADS=1 xargs -d '\n' -P "$jobs" -I{} bash -c 'check_layer "$@"' - {} "$folder/examples/gradcheck_attention" "$device"
}
part A 90 "gradient check of every layer, in double" gradients

# Every unit test with managed memory.
TAPEFORMER_TEST_DEVICE=$device TAPEFORMER_CUDA_MEMORY=managed TAPEFORMER_GRADCHECK_ELEMENTS=4 \
  part A 1200 "unit tests on the GPU" cases '*/tests/autograd/*,*/tests/nn/*,*/tests/optim/*' \
  --source-file-exclude='*_hopper*,*/autograd/cuda/test_*,*/test_cuda_graph_cache*'

programs() {
  local visible
  IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES-}"
  [[ $device != cuda:* ]] || local -x CUDA_VISIBLE_DEVICES=${visible[${device#cuda:}]-${device#cuda:}}
  bash tests/examples/on_a_gpu.sh "$folder"/examples/{train_translation,train_language_model,gradcheck_attention}
}
part - 1800 "the programs, next to the CPU" programs

# The first models of the documents, as they are trained there.
# learns RUN PROGRAM OPTIONS...; the median of tokens/s over the run's log, and its final losses.
learns() {
  local run=$work/$1 program=$folder/examples/$2
  shift 2
  rm -rf "$run" # of an earlier check with the same --logs
  "$program" train --run "$run" --device "$device" ${rehearsed:+--steps "$rehearsed" --warmup 1} "$@" || return
  sed -n 's/.*"tokens_per_second":\([0-9.]*\).*/\1/p' "$run/metrics.jsonl" | sort -n |
    awk '{ rate[NR] = $1 } END { if (NR) printf "median %d tokens/s; ", rate[int((NR + 1) / 2)] }'
  sed -n 's/.*"train_loss":\([0-9.e-]*\).*/training loss \1; /p' "$run/metrics.jsonl" | tail -n 1 | tr -d '\n'
  sed -n 's/.*"step":\([0-9]*\).*"validation_loss":\([0-9.e-]*\).*/validation loss \2 after \1 steps/p' \
    "$run/metrics.jsonl" | tail -n 1
}
# Steps of the benches' models, ours and PyTorch's in turn, or only ours.
workloads=(gpt2-124m-h200 babygpt chargpt translate translate-base gpt2-124m-1k) small=(babygpt chargpt translate)
[ -z "$rehearsed" ] || { workloads=(babygpt:1) small=(babygpt:1); }
# steps PRECISION ROUNDS OPTIONS...: of all workloads, or with --graphs of those whose launches take most of a step.
steps() {
  local precision=$1 rounds=$2 chosen=("${workloads[@]}") code
  shift 2
  [[ -z $set || -n $rehearsed || " $* " != *" --no-eager "* ]] || chosen=(gpt2-124m-h200 babygpt translate) # compiling takes a minute
  if [ -n "$python" ]; then
    [[ " $* " != *" --graphs "* ]] || chosen=("${small[@]}")
    "$python" tests/bench/compare_with_pytorch --python "$python" --build "$folder" --device "$device" \
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
  our_steps "$precision" "${chosen[@]}"
}
# operations OPTIONS...: single operations, ours and PyTorch's in turn, or only ours.
operations() {
  "${python:-python3}" tests/bench/compare_ops --device "$device" --build "$folder" ${python:+--python "$python"} \
    ${rehearsed:+--tiny} --rounds 2 --seconds 0.1 "$@" >>"$work/operations.jsonl"
}
# Tokens per second: of a translation model, and of language models, ours and PyTorch's in turn, or only ours.
decoding() {
  "$bench" decoding ${rehearsed:+--width 16 --layers 1 --batch 2} --tokens 24 --only contiguous --rounds 3 \
    --device "$device" --precision "$1" || return
  if [ -n "$python" ] && [ -z "$rehearsed" ]; then
    "$python" tests/bench/torch_generation.py --build "$folder" --device "$device" --precision "$1" --streams 1 64 --rounds 3 |
      tee -a "$work/decoding.jsonl"
    local code=$?
    [ $code = 77 ] || return $code
  fi
  echo "without PyTorch's times"
  local models=(character gpt2-124m) model streams
  [ -z "$rehearsed" ] || models=(tiny)
  for model in "${models[@]}"; do
    for streams in 1 ${rehearsed:-64}; do
      "$bench" decoding --language "$model" --batch "$streams" --only contiguous --rounds 3 \
        --device "$device" --precision "$1" || return
    done
  done
}
# The character model of nanoGPT's recipe, on Tiny Shakespeare.
recipe() {
  [ -n "$corpus" ] || { echo "skipped: name Tiny Shakespeare with --corpus"; return 77; }
  learns recipe train_language_model --preset shakespeare-char --corpus "$corpus" --precision bf16 || return
  sed -n 's/.*"validation_loss":\([0-9.e-]*\).*/\1/p' "$work/recipe/metrics.jsonl" | sort -g | head -n 1 |
    sed "s/.*/best validation loss & (the aim: 1.48 at most)/"
}

# Causal attention with sinks, a cap of the scores, a relative bias or sigmoid weights, and the plain one, by the fastest
# kernels and by those for tensor cores.
changed_attention() {
  local sizes=$([ -n "$rehearsed" ] && echo "1 2 40 64" || echo "16 32 1024 64") kind path operations=()
  for kind in "" sink_ softcap_ relative_ sigmoid_; do operations+=("${kind}attention_forward" "${kind}attention_backward"); done
  for path in hopper tensor_cores; do
    echo "TAPEFORMER_ATTENTION=$path:"
    TAPEFORMER_ATTENTION=$path times_of "$sizes" "${operations[@]}" || return
  done
}

part B 180 "steps beside PyTorch, bf16" steps bf16 $([ -n "$set" ] && echo 1 || echo 2) --no-compile
part B 170 "steps beside compiled PyTorch, bf16" steps bf16 1 --no-eager  # compiling takes most of the time
part - 590 "steps beside PyTorch's graphs, bf16" steps bf16 1 --no-eager --no-compile --graphs
part B 90 "attention beside PyTorch's, bf16" operations --dtype bf16 --attention
part B 40 "attention that changes its scores, bf16" changed_attention
part B 60 "decoding, bf16" decoding bf16
part - 590 "single kernels, bf16" operations --dtype bf16
part - 590 "steps beside PyTorch, tf32" steps tf32 2 --no-compile
part - 590 "steps beside compiled PyTorch, tf32" steps tf32 1 --no-eager
part - 590 "single kernels, tf32" operations --dtype tf32
part - 590 "decoding, f32" decoding f32

# Why: the phases of a step.
phases() {
  "$bench" train_step "$([ -n "$rehearsed" ] && echo babygpt:1 || echo gpt2-124m-h200)" --device "$device" --precision bf16 --profile \
    ${rehearsed:+--steps "$rehearsed"}
}
kernels=(--source-file='*/test_cuda_every_kernel.cpp,*/test_cuda_expert_products.cpp,*/test_cuda_sparse_attention.cpp,*/test_cuda_optim.cpp')
part C 60 "the phases of a step" phases
part C 120 "compute-sanitizer memcheck, attention" sanitized memcheck --source-file='*/test_cuda_attention*'
part C 100 "nanoGPT's recipe, bf16" recipe
part C 1800 "compute-sanitizer racecheck" sanitized racecheck "${kernels[@]}"
part - 1800 "compute-sanitizer memcheck" sanitized memcheck "${kernels[@]}"
for precision in f32 tf32 bf16; do
  part - 590 "quickstart's model, GPU, $precision" learns "quickstart-$precision" train_translation --precision $precision
  part - 590 "character model, GPU, $precision" learns "characters-$precision" train_language_model \
    --preset shakespeare-char-cpu ${corpus:+--corpus "$corpus"} --precision $precision
done
[ -z "$lists" ] || exit 0
[ ${#have_run[@]} -gt 0 ] || refuse "no part has run; --list shows the names for --only, and --minutes may be too short"

# The tables of what has run now, and the parts last.
for name in "${have_run[@]}"; do
  [[ $name =~ machine|figures|phases|layer|agree|beside|scores|single|decoding ]] || continue
  hidden='(ours|graphs|PyTorch|compiled): [0-9.]+ ms$|^\{'
  [[ $name != decoding* ]] || hidden='^$' # records are all that it prints
  echo && echo "$name" && grep -vE "$hidden" "$(log_of "$name")"
done
echo
cat "$work"/lines/* 2>/dev/null
[ ! -e "$work/failed" ]
