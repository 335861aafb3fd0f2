# The CUDA backend on the host: its kernels compiled as C++ against the emulator, their launchers against an emulated
# CUDA runtime, and the sources that choose between devices compiled with them, linked with everything else of the
# library.
add_subdirectory(emulator)

set(emulated_sources ${TAPEFORMER_DISPATCHING_SOURCES} ${TAPEFORMER_CUDA_SOURCES}
  emulator/emulated_cuda.cpp emulator/emulated_graphs.cpp emulator/libraries/emulated_cublaslt.cpp
  emulator/libraries/emulated_nccl.cpp)
list(FILTER emulated_sources EXCLUDE REGEX "/(cublaslt|nccl)_functions\\.cpp$")
list(JOIN TAPEFORMER_DISPATCHING_SOURCES "|" dispatching)
string(REPLACE "." "\\." dispatching "${dispatching}")
string(REPLACE "${PROJECT_SOURCE_DIR}/" "" dispatching "${dispatching}")
set(others "/(${dispatching}|unity_dispatching_[a-z0-9_]*\\.cxx|autograd/cuda/.*|autograd/communication/nccl.*|autograd/kernels/cuda/.*)\\.o$")
add_library(tapeformer_emulated STATIC ${emulated_sources}
  $<TARGET_OBJECTS:tapeformer> $<FILTER:$<TARGET_OBJECTS:tapeformer_core>,EXCLUDE,${others}>)
# Kernels must give the same bits even where a compiler fuses products and sums differently from nvcc.
set_source_files_properties(${TAPEFORMER_CUDA_SOURCES} PROPERTIES LANGUAGE CXX)
set(of_kernels -xc++ -ffp-contract=off)
# -O2 takes a quarter less to compile than -O3; the emulator is as fast.
target_compile_options(tapeformer_emulated PRIVATE $<$<CONFIG:Release>:-O2> ${of_kernels})
tapeformer_unite(tapeformer_emulated 12)
target_compile_definitions(tapeformer_emulated PUBLIC TAPEFORMER_CUDA)
target_include_directories(tapeformer_emulated PUBLIC ${PROJECT_BINARY_DIR}/include)
get_target_property(libraries tapeformer LINK_LIBRARIES)
list(FILTER libraries EXCLUDE REGEX "^CUDA::")
target_link_libraries(tapeformer_emulated PUBLIC cuda_emulator ${libraries})

# The same tests, and the programs, on the emulated device. Callers of dispatch(), or of kernels for GPUs, are compiled for it.
set(others "/autograd/test_dispatch\\.cpp\\.o$")
set(tests_elsewhere $<FILTER:$<TARGET_OBJECTS:tapeformer_tests>,EXCLUDE,${others}> ${parsers})
add_executable(tapeformer_tests_emulated autograd/test_dispatch.cpp ${TAPEFORMER_CUDA_TEST_SOURCES}
  ${TAPEFORMER_EMULATOR_TEST_SOURCES} ${tests_elsewhere} ${TAPEFORMER_PROGRAM_OBJECTS})
target_compile_options(tapeformer_tests_emulated PRIVATE ${of_tests})
tapeformer_unite(tapeformer_tests_emulated 12)
target_link_libraries(tapeformer_tests_emulated PRIVATE tapeformer_emulated doctest::doctest)
foreach(program train_translation train_language_model gradcheck_attention)
  add_executable(${program}_emulated $<TARGET_OBJECTS:${program}> ${TAPEFORMER_PROGRAM_OBJECTS})
  target_link_libraries(${program}_emulated PRIVATE tapeformer_emulated)
endforeach()

tapeformer_tests("" everything tapeformer_tests_emulated "${TAPEFORMER_EMULATOR_TEST_SOURCES}")

# Gradient checks of a few elements of each input; of layers one, as their operations have been checked before.
tapeformer_device_tests(emulated everything tapeformer_tests_emulated "(autograd/(ops/|tape/|gradcheck/|communication/test_data_|test_)|optim/)"
  TAPEFORMER_GRADCHECK_ELEMENTS=3)
tapeformer_device_tests(emulated everything tapeformer_tests_emulated nn/ TAPEFORMER_GRADCHECK_ELEMENTS=1)
# Models that learn and generate, and checkpoints of every family: minutes in an emulator.
set(slow ${TAPEFORMER_ADDED_TESTS})
list(FILTER slow INCLUDE REGEX "nn/(generation/(cached_steps|generate|generate_cached|generate_text|language_steps|translation_steps)|\
across_devices|shared_model|formats/[a-z_]+|attention/(additive|cost)|transformer/(causality|recompute_layers|encoder_decoder|\
decoder_only|decoder_only_patterns))$")
if(slow)
  set_tests_properties(${slow} PROPERTIES LABELS slow)
endif()
# Without test_cuda_every_kernel, which repeats the others for the race detector.
tapeformer_device_tests(emulated everything tapeformer_tests_emulated "autograd/kernels/test_cuda_([^e]|e[^v])")
# And in memory that the host does not see, on two devices: tests that choose the devices of their tensors.
set(apart autograd/device autograd/dispatch autograd/async_readback autograd/storage autograd/kernels/cuda_cublaslt
  autograd/cuda/arena autograd/cuda/copies autograd/cuda/device_errors autograd/cuda/graphs autograd/cuda/memory
  autograd/cuda/nccl_functions autograd/cuda/runtime autograd/communication/nccl autograd/communication/nccl_engine
  autograd/communication/nccl_training autograd/ops/matmul_bf16
  autograd/cuda_graph_cache autograd/cuda_graph_cache_masks autograd/cuda_graph_cache_memory
  autograd/cuda_graph_cache_training examples/shared/compute examples/shared/ranks nn/across_devices)
list(TRANSFORM apart REPLACE "(.+)/(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/test_\\2.cpp")
tapeformer_tests(emulated/apart/ everything tapeformer_tests_emulated "${apart}" TAPEFORMER_EMULATED_DEVICES=2)
# Sums of three ranks: two cannot show an order.
set(nccl ${apart})
list(FILTER nccl INCLUDE REGEX "/communication/")
tapeformer_tests(emulated/three/ everything tapeformer_tests_emulated "${nccl}" TAPEFORMER_EMULATED_DEVICES=3)
tapeformer_tests(emulated/three_managed/ everything tapeformer_tests_emulated "${nccl}" TAPEFORMER_EMULATED_DEVICES=3
  TAPEFORMER_CUDA_MEMORY=managed)

# The kernels again, compiled so that the emulator sees each access: where two threads meet unordered, a test fails. Part of
# the sanitized tests.
set(kernels ${TAPEFORMER_CUDA_SOURCES})
list(FILTER kernels INCLUDE REGEX "\\.cu$")
add_library(tapeformer_race_kernels OBJECT EXCLUDE_FROM_ALL ${kernels})
target_compile_options(tapeformer_race_kernels PRIVATE ${TAPEFORMER_RACE_OPTIONS} ${of_kernels})
target_compile_definitions(tapeformer_race_kernels PRIVATE TAPEFORMER_CUDA)
target_include_directories(tapeformer_race_kernels PRIVATE ${PROJECT_BINARY_DIR}/include)
target_link_libraries(tapeformer_race_kernels PRIVATE tapeformer_flags cuda_emulator OpenMP::OpenMP_CXX)
add_executable(tapeformer_tests_races EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tapeformer_tests_emulated> ${tests_elsewhere}
  ${TAPEFORMER_PROGRAM_OBJECTS} $<TARGET_OBJECTS:tapeformer_race_kernels>)
target_link_libraries(tapeformer_tests_races PRIVATE tapeformer_emulated doctest::doctest)
# Every kernel once, and those with asynchronous copies and products in more cases; a random order.
set(watched "autograd/kernels/test_cuda_(every_kernel|expert_products|sparse_attention|optim|attention_hopper)")
tapeformer_device_tests(races sanitized tapeformer_tests_races ${watched})
set_property(TEST ${TAPEFORMER_ADDED_TESTS} APPEND PROPERTY ENVIRONMENT TAPEFORMER_EMULATOR_ORDER=7 TAPEFORMER_FEW_CASES=1)

# The benches that measure on GPUs, in miniature.
add_executable(bench_emulated $<TARGET_OBJECTS:bench> ${TAPEFORMER_PROGRAM_OBJECTS})
target_link_libraries(bench_emulated PRIVATE tapeformer_emulated)
tapeformer_test(emulated/agreement everything bench_emulated device_agreement --tiny --steps 3)
tapeformer_test(emulated/operations everything bench_emulated ops --device cuda --dtype bf16 --tiny --seconds 0)
tapeformer_test(emulated/decoding everything bench_emulated decoding --language tiny --device cuda --precision bf16 --rounds 1)
tapeformer_test(emulated/decoding_translations everything bench_emulated decoding --layers 1 --width 16 --heads 2 --feed-forward 16
  --vocabulary 13 --batch 2 --beam 2 --source 4 --tokens 8 --device cuda --precision bf16 --rounds 1)

# In parallel with the sanitized tests, because it takes long.
tapeformer_test(emulated/programs sanitized ${CMAKE_CURRENT_SOURCE_DIR}/examples/on_a_gpu.sh
  $<TARGET_FILE:train_translation_emulated> $<TARGET_FILE:train_language_model_emulated>
  $<TARGET_FILE:gradcheck_attention_emulated>)
