#!/usr/bin/env bash
# The programs on a GPU, or on an emulated one: they give the results of the CPU, checkpoints move between the
# two, and each precision trains.
# Usage: on_a_gpu.sh TRAIN_TRANSLATION TRAIN_LANGUAGE_MODEL GRADCHECK_ATTENTION
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"
translation=$(realpath "$1") language=$(realpath "$2") gradcheck=$(realpath "$3")

# near A B MOST: the losses that two runs have logged differ by at most so much.
near() {
  paste <(losses "$1" | sed 's/.*loss"://') <(losses "$2" | sed 's/.*loss"://') |
    awk -v most="$3" '{ d = $1 - $2; if (NF != 2 || d > most || -d > most) bad = 1 } END { exit bad || NR == 0 }'
}

# --- train_translation ---------------------------------------------------------------------------------------
tiny=(--grammar-pairs 100 --held-out 6 --tokenizer word --width 16 --heads 2 --encoder-layers 1 --decoder-layers 1
  --feed-forward 16 --batch-tokens 64 --dropout 0.1 --steps 5 --warmup 2 --validate-every 4 --checkpoint-every 3
  --accumulate 2 --samples 1 --log-every 2 --threads 2)
trains "a training on the cpu ends well" "$work/cpu" "${tiny[@]}" --device cpu
trains "a training on the GPU ends well" "$work/gpu" "${tiny[@]}" --device cuda
check "it says where it computes" grep -q 'computes on cuda:0 (.*) in f32' "$work/err"
check "it says how much memory it took" grep -q 'peak memory of cuda:0: [0-9]* MiB' "$work/err"
check "the losses are those of the cpu" near "$work/cpu" "$work/gpu" 1e-4
train "$work/broken" "${tiny[@]}" --device cuda:0 --max-minutes 0.0000001
train "$work/broken" --resume --device cuda
check "a training that was broken off gives the same bits" \
  cmp "$work/gpu/checkpoint.safetensors" "$work/broken/checkpoint.safetensors"
train "$work/hindered" "${tiny[@]}" --device cuda --max-minutes 0.0000001
mkdir "$work/hindered/checkpoint.safetensors.partial"
refuses "a checkpoint that cannot be written while steps go on" 'cannot be written: Is a directory; once that is fixed' \
  train --run "$work/hindered" --resume --device cuda
rmdir "$work/hindered/checkpoint.safetensors.partial"
train "$work/hindered" --resume --device cuda
check "the checkpoint before it is whole" cmp "$work/gpu/checkpoint.safetensors" "$work/hindered/checkpoint.safetensors"
train "$work/moved" "${tiny[@]}" --device cuda --max-minutes 0.0000001
train "$work/moved" --resume --device cpu --max-minutes 0.0000001
check "a training goes on on the cpu, and says so" grep -q 'note: the run was on cuda:0 in f32 up to here' "$work/err"
logs "and on the GPU again, by itself" 'note: the run was on cpu' "$work/moved" --resume
check "to the same losses" near "$work/cpu" "$work/moved" 1e-4

said() { printf 'the cat sleeps .\n\nthe dog sees the cat .\nthe dog .\nthe cat sees .\n' | "$program" translate --run "$work/gpu" "$@" 2>"$work/err"; }
said --device cpu >"$work/searched"
for cache in contiguous paged none; do
  said --device cuda --cache $cache >"$work/out"
  check "translate says on the GPU what it says on the cpu, with --cache $cache" mostly "$work/out" "$work/searched"
done
said --device cuda --sample --heatmap "$work/map.svg" --heatmap-head all >"$work/out"
check "translate --sample draws on the GPU, and a picture" test -s "$work/map.svg"
for device in cpu cuda; do
  "$program" evaluate --run "$work/gpu" --device $device --beam 2 >"$work/found-$device" 2>"$work/err"
  check "evaluate ends well on $device" test $? = 0
done
# A loss adds up the roundings of some hundred operations in a row, and a perplexity is off by its share.
check "evaluate finds the same" alike <(grep -E '^(sentences|loss)' "$work/found-cpu") \
  <(grep -E '^(sentences|loss)' "$work/found-cuda") 1e-4
check "its steps are graphs" grep -q ' [0-9]* steps as graphs$' "$work/err"
"$program" evaluate --run "$work/gpu" --device cuda --beam 2 --no-graphs >"$work/out" 2>"$work/err"
check "which --no-graphs does without" sh -c "! grep -q 'as graphs' '$work/err'"
check "and finds the same, to the last digit" cmp "$work/found-cuda" "$work/out"

trains "a training in bf16 ends well" "$work/bf16" "${tiny[@]}" --device cuda --precision bf16
check "its losses follow" near "$work/cpu" "$work/bf16" 0.05
check "its weights are written in f32" sh -c "! grep -aq BF16 '$work/bf16/weights.safetensors'"
train "$work/bf16b" "${tiny[@]}" --device cuda --precision bf16 --max-minutes 0.0000001
refuses "going on in tf32 on the cpu" "needs a GPU.*--precision f32" train --run "$work/bf16b" --resume --device cpu --precision tf32
train "$work/bf16b" --resume
check "a training in bf16 goes on in bf16, to the same bits" \
  cmp "$work/bf16/checkpoint.safetensors" "$work/bf16b/checkpoint.safetensors"
does "evaluate computes in bf16" evaluate --run "$work/bf16" --device cuda --precision bf16 --beam 1
check "and says so" grep -q 'computes on cuda:0 (.*) in bf16' "$work/err"
trains "a training in tf32 ends well" "$work/tf32" "${tiny[@]}" --device cuda --precision tf32
check "its losses follow" near "$work/cpu" "$work/tf32" 0.02
refuses "a GPU that is not there" "no cuda:99: .*; try cpu" train --run "$work/new" "${tiny[@]}" --device cuda:99

# --- train_language_model --------------------------------------------------------------------------------------
program=$language
for i in $(seq 40); do printf 'The %dth cat sleeps on mat %d.\n' "$i" "$((i * 7 % 31))"; done >"$work/text"
small=(--corpus "$work/text" --layers 1 --width 16 --heads 2 --context 16 --batch 2 --accumulate 2 --dropout 0.1 --steps 6
  --warmup 2 --validate-every 3 --validation-batches 2 --validation-kind estimate --samples 1 --log-every 2 --threads 2)
train "$work/language-cpu" "${small[@]}" --device cpu
trains "a language model trains on the GPU" "$work/language" "${small[@]}" --device cuda
check "the losses are those of the cpu" near "$work/language-cpu" "$work/language" 1e-4
check "its steps are graphs" grep -q '"replayed":[1-9]' "$work/language/metrics.jsonl"
train "$work/queued" "${small[@]}" --device cuda --no-graphs
check "which --no-graphs does without" grep -q '"replayed":0' "$work/queued/metrics.jsonl"
check "the samples' steps are graphs too" grep -q '"replayed_in_samples":[1-9]' "$work/language/metrics.jsonl"
check "but for --no-graphs" grep -q '"replayed_in_samples":0' "$work/queued/metrics.jsonl"
check "to the same bits" cmp "$work/language/checkpoint.safetensors" "$work/queued/checkpoint.safetensors"
llama=(--precision bf16 --positions rotary --norm rms --feed-forward-kind swiglu --attention gqa --bias=false --fused-head
  --recompute-layers --objective prefix)
trains "Llama's kind trains in bf16, with prefixes, recomputed layers and the fused loss" "$work/llama" "${small[@]}" \
  --device cuda "${llama[@]}"
check "its steps are graphs too, whatever the prefixes" grep -q '"replayed":[1-9]' "$work/llama/metrics.jsonl"
train "$work/llama-queued" "${small[@]}" --device cuda "${llama[@]}" --no-graphs
check "to the same bits as without" cmp "$work/llama/checkpoint.safetensors" "$work/llama-queued/checkpoint.safetensors"
trains "and latent attention" "$work/latent" "${small[@]}" --device cuda --attention mla --positions sinusoidal
written=(--run "$work/language" --prompt 'The 7th' --max-tokens 16 --samples 4)
"$program" generate "${written[@]}" --device cpu 2>"$work/err" | in_lines >"$work/expected"
for cache in contiguous paged none; do
  "$program" generate "${written[@]}" --device cuda --cache $cache 2>"$work/err" | in_lines >"$work/out"
  check "generate writes on the GPU what it writes on the cpu, with --cache $cache" mostly "$work/expected" "$work/out"
done
for run in llama latent; do
  does "generate writes in bf16 with $run" generate --run "$work/$run" --prompt 'The' --device cuda --precision bf16 \
    --max-tokens 8
done
prints "evaluate measures on the GPU" '^exact .*nats' evaluate --run "$work/language" --device cuda
"$program" export --run "$work/language" --output "$work/exported" >"$work/out" 2>"$work/err"
trains "fine-tuning on the GPU" "$work/tuned" --from "$work/exported" --corpus "$work/text" --device cuda --steps 3 \
  --warmup 1 --samples 0 --batch 2

# --- gradcheck_attention -----------------------------------------------------------------------------------------
program=$gradcheck
does "gradients are checked on the GPU" --device cuda --layer single_head --mode causal --no-second
check "and all agree" grep -q ' 0 failed' "$work/out"
prints "the JSON says where" '"device": "cuda:0"' --device cuda --layer matrices --json
does "single precision too" --device cuda --dtype f32 --layer single_head --mode self

ends_here
