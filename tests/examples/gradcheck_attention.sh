#!/usr/bin/env bash
# The program gradcheck_attention as its users see it: its lists, checks, refusals and findings.
# Usage: gradcheck_attention.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

rows() { grep -c "$1" "$work/out"; }

ends "the list" 0 --list
check "it lists layers" grep -q '^multi_head$' "$work/out"
check "and their modes" grep -q '^  cross, causal, .*window' "$work/out"
ends "help" 0 --help
check "it teaches by examples" grep -q -- 'gradcheck_attention --layer multi_head' "$work/out"

ends "one layer" 0 --layer multi_head_packed
check "a row for each of its 15 modes" test "$(rows ' ms  PASS$')" = 15
check "they count parameters" grep -q '^multi_head_packed  *self window  *386 ' "$work/out"
check "the last line sums up" grep -q '^15 checks, 0 failed: worst error .*e-.*both orders, forward mode, the same bits again' \
  "$work/out"
ends "one mode, named short, of two layers" 0 --layer matrices --layer single_head --mode causal --no-second
check "in self- and cross-attention" test "$(rows ' PASS$')" = 2
check "without second derivatives" grep -q ' - ' "$work/out"
ends "first derivatives alone" 0 --layer matrices --no-second --no-forward --no-repeats
check "and nothing else" grep -qE '^matrices .* -  +- ' "$work/out"
check "is what the last line says" grep -q 'in f64, [0-9.]* s' "$work/out"
ends "inputs that share memory" 0 --layer scaled_dot_product_one_tensor --layer scaled_dot_product_aliases --mode causal
check "in self- and cross-attention" test "$(rows ' PASS$')" = 3
ends "two points" 0 --layer multi_head --mode "self causal" --stencil 2 --step 1e-4 --tolerance 1e-5
ends "other sizes" 0 --layer grouped_query_rotary --mode self --batch 1 --queries 3 --width 3 --heads 6 --groups 3 \
  --head-width 2 --value-width 5 --seed 7
check "they change the parameters" grep -q ' 225  ' "$work/out"
ends "single precision" 0 --dtype f32 --layer multi_head
check "against double, without forward mode" grep -q 'f32 against f64, both orders, the same bits again' "$work/out"

ends "a tolerance below rounding" 1 --layer matrices --tolerance 1e-30
check "is a failure that is shown" grep -q ' FAIL$' "$work/out"
ends "in single precision too" 1 --layer matrices --dtype f32 --tolerance 1e-12
ends "a large step, which smaller ones mend" 0 --layer matrices --step 0.5
ends "differences that are too coarse" 1 --layer matrices --step 50
check "are called so" grep -q 'first x: differences too coarse' "$work/out"

ends "JSON on standard output" 0 --layer single_head --mode dropout --json
check "it is alone there" test "$(head -c1 "$work/out")" = "{"
check "it says how it went" grep -q '^  "passed": true,$' "$work/out"
check "and how each input did" grep -q '"input": "key.weight"' "$work/out"
check "the summary went to standard error" grep -q '2 checks, 0 failed' "$work/err"
ends "JSON of a layer with key biases" 0 --layer multi_head --mode "self causal" --no-second --json
check "which have no relative error, since they are zero in theory" sh -c \
  "grep -A1 '\"key.bias\"' '$work/out' | grep -q '\"relative_error\": null'"
check "as others have" sh -c "! grep -A1 '\"key.weight\"' '$work/out' | grep -q null"
ends "a sample of elements" 0 --layer single_head --mode dropout --no-second --no-forward --no-repeats --elements 3 --json
check "of each input" sh -c "! grep '\"elements\"' '$work/out' | grep -v '\"elements\": [123],'"
ends "JSON in a file" 0 --layer matrices --json "$work/results.json"
check "it is there, beside the table" grep -q '"layer": "matrices"' "$work/results.json"
check "the table is printed" grep -q '^matrices .*PASS$' "$work/out"
if command -v python3 >/dev/null; then
  check "it is JSON" python3 -m json.tool "$work/results.json"
fi

refuses "an unknown layer" "one of scaled_dot_product, .*; got mutli_head" --layer mutli_head
refuses "an unknown mode" "one of self, self causal, .*; got casual" --mode casual
refuses "a mode that the layer does not have" "--list" --layer weightless --mode causal
refuses "an unknown option" "--tolerence" --tolerence 1
refuses "a device that is none" "cpu, cuda, cuda:N or auto; got gpu" --device gpu
refuses "another type" "f64" --dtype bf16
refuses "another stencil" "stencil" --stencil 3
refuses "fewer elements than none" "--elements must not be negative; got -1" --elements -1
refuses "a number that is none" "queries" --queries many
refuses "no heads" "--heads must be from 1 to 2147483647; got 0" --heads 0
refuses "groups that do not divide the heads" "multiple" --heads 3
refuses "an odd head width" "even" --head-width 3
refuses "an impossible dropout" "dropout" --dropout 1
refuses "a step backwards" "step" --step -1
refuses "a self-test in single precision" "f64" --self-test --dtype f32

refuses "a seed of the costs" "--seed has no effect with --cost" --cost --seed 3
refuses "keys of the costs" "--keys has no effect with --cost" --cost --keys 3
refuses "JSON of the list" "--json has no effect with --list" --list --json
refuses "two tables at once" "--cost has no effect with --list" --list --cost
refuses "differences of single precision" "--stencil has no effect with --dtype f32" --dtype f32 --stencil 2
refuses "second derivatives of the self-test" "--second has no effect with --self-test" --self-test --second
refuses "forward mode of single precision" "--forward has no effect with --dtype f32" --dtype f32 --forward
refuses "repeated passes of the self-test" "--repeats has no effect with --self-test" --self-test --repeats
refuses "JSON that cannot be written" "cannot be written" --layer matrices --json "$work/no/such/file"
check "before anything is computed" test ! -s "$work/out"
refuses "a number of threads that is none" "--threads" --threads -1

ends "several threads" 0 --layer single_head --mode self --no-second --threads 2
some=(composed multi_head latent_absorbed differential native_sparse gated_delta_rule experts)  # a slow test has all
ends "the self-test, with a sample of elements" 0 --self-test --elements 4 "${some[@]/#/--layer=}"
check "it plants many faults" grep -qE '^[0-9]{3,} faults planted in [0-9]+ checks: [0-9]+ noticed, 0 missed, 0 alarms' \
  "$work/out"
check "also in plain operations" grep -q "^composed .*shifted mask  *softmax, input 0 .* yes\$" "$work/out"
# With a tolerance that lets everything through, no fault is noticed, and it says so.
ends "a blind check" 1 --self-test --layer multi_head --tolerance 10
check "is found out" grep -q 'dropped term .* no  WRONG$' "$work/out"

ends_here
