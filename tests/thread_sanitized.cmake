# Code for several threads, and all work of OpenMP's threads in a run, with the thread sanitizer: for a build by
# clang with libomp, whose libarcher.so tells the sanitizer what its threads wait for. The preset thread-sanitized has
# all of that: `tests/run.sh --tsan`.
file(GLOB thread_sources CONFIGURE_DEPENDS autograd/communication/test_communicator.cpp autograd/communication/test_rank_sums.cpp
  autograd/tape/test_activation_checkpointing.cpp autograd/test_random.cpp autograd/test_shared_parameters.cpp
  autograd/test_storage.cpp autograd/tape/test_tape.cpp autograd/system/test_threads.cpp autograd/ops/test_attention_fused.cpp
  autograd/ops/test_linear.cpp data/tokenizers/test_byte_pair.cpp examples/shared/test_ranks.cpp
  nn/test_shared_model.cpp optim/test_clip.cpp optim/test_rule_optimizer.cpp)
add_executable(tapeformer_tests_threads EXCLUDE_FROM_ALL main.cpp nn/module_case.cpp ${TAPEFORMER_REFERENCE_SOURCES}
  ${thread_sources})
target_link_libraries(tapeformer_tests_threads PRIVATE tapeformer_programs xtensor doctest::doctest)
target_compile_definitions(tapeformer_tests_threads PRIVATE TAPEFORMER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# Ignores libomp's internals.
set(in_our_code TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1)
tapeformer_tests(threads/ threads tapeformer_tests_threads "${thread_sources}" ${in_our_code})

add_custom_target(threads DEPENDS tapeformer_tests_threads train_language_model train_translation)

# Both programs, with validations, checkpoints and samples.
function(tapeformer_training program)
  set(run ${CMAKE_CURRENT_BINARY_DIR}/threads_${program})
  tapeformer_test(threads/${program} threads sh -c "rm -rf \"$0\" && exec \"$@\"" ${run} $<TARGET_FILE:${program}> train
    --run ${run} --steps 8 --warmup 2 --validate-every 4 --checkpoint-every 3 --keep-checkpoints 2 --samples 1 --width 32
    --heads 2 --dropout 0.1 --threads 2 ${ARGN})
  set_property(TEST threads/${program} PROPERTY ENVIRONMENT ${in_our_code})
endfunction()
tapeformer_training(train_language_model --layers 2 --context 32 --batch 8 --validation-kind estimate --validation-batches 2)
tapeformer_training(train_translation --grammar-pairs 300 --held-out 20 --encoder-layers 1 --decoder-layers 1)
