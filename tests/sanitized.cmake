# The library, the emulated device and the programs' common code, compiled once more with the address and undefined-behaviour
# sanitizers, under the tests of the release build, which are not compiled again: `tests/run.sh --asan`.
file(GLOB program_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*/*.cpp)
list(FILTER program_sources EXCLUDE REGEX "/(guide|python)/")
file(GLOB embedded ${PROJECT_BINARY_DIR}/embedded/*.cpp)  # the report's page; the library's are in its list
list(REMOVE_ITEM embedded ${TAPEFORMER_SOURCES})
get_target_property(emulator_sources cuda_emulator SOURCES)
list(TRANSFORM emulator_sources PREPEND emulator/)
# The emulator's products, and its books of accesses and meetings, are those of the other tests: they are slow when
# instrumented, and touch no memory of kernels that is not checked otherwise.
list(FILTER emulator_sources EXCLUDE REGEX "/(async_accesses|hopper_order|hopper_products|meeting|tensor_core)\\.cpp$")
set(library_sources ${TAPEFORMER_SOURCES})
list(REMOVE_ITEM library_sources autograd/cuda/absent.cpp autograd/communication/nccl_absent.cpp
  ${TAPEFORMER_DISPATCHING_SOURCES})

set(sanitizers -fsanitize=address,undefined)
# Optimised where tests spend their time; the rest is compiled as fast as possible.
set(sources ${library_sources} ${emulated_sources} ${emulator_sources} ${program_sources} ${embedded})
set(seldom_run ${sources})
list(FILTER seldom_run INCLUDE REGEX "/(examples|nn|optim|config|gradcheck|json)/|/data/[a-z_]+\\.cpp|_config\\.cpp")
list(REMOVE_ITEM sources ${seldom_run})
add_library(tapeformer_sanitized OBJECT EXCLUDE_FROM_ALL ${sources})
target_compile_options(tapeformer_sanitized PRIVATE $<$<CONFIG:Release>:-O1>)
add_library(tapeformer_sanitized_seldom_run OBJECT EXCLUDE_FROM_ALL ${seldom_run})
target_compile_options(tapeformer_sanitized_seldom_run PRIVATE $<$<CONFIG:Release>:-O0>)
tapeformer_unite(tapeformer_sanitized_seldom_run 26)
tapeformer_unite(tapeformer_sanitized 12)
foreach(part tapeformer_sanitized tapeformer_sanitized_seldom_run)
  target_compile_options(${part} PRIVATE -g1 ${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_definitions(${part} PRIVATE TAPEFORMER_CUDA $<TARGET_PROPERTY:tapeformer,COMPILE_DEFINITIONS>
    $<$<CXX_COMPILER_ID:Clang>:__SANITIZE_ADDRESS__>)  # as defined by g++ itself
  target_include_directories(${part} PRIVATE ${PROJECT_BINARY_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/emulator)
  target_include_directories(${part} SYSTEM PRIVATE $<TARGET_PROPERTY:tapeformer,INCLUDE_DIRECTORIES>)
  target_link_libraries(${part} PRIVATE tapeformer_flags OpenMP::OpenMP_CXX nlohmann_json::nlohmann_json CLI11::CLI11)
endforeach()
if(TAPEFORMER_MPI)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/autograd/communication/mpi.cpp
    ${PROJECT_SOURCE_DIR}/autograd/communication/mpi_collectives.cpp PROPERTIES INCLUDE_DIRECTORIES "${MPI_CXX_INCLUDE_DIRS}")
endif()

# Instrumented objects first: the linker takes the first copy of an inline function that tests have too.
set(instrumented $<TARGET_OBJECTS:tapeformer_sanitized> $<TARGET_OBJECTS:tapeformer_sanitized_seldom_run>)
add_executable(tapeformer_tests_sanitized EXCLUDE_FROM_ALL ${instrumented} $<TARGET_OBJECTS:tapeformer_tests_emulated>
  ${tests_elsewhere})
add_executable(train_translation_sanitized EXCLUDE_FROM_ALL ${instrumented} $<TARGET_OBJECTS:train_translation>)
foreach(program tapeformer_tests_sanitized train_translation_sanitized)
  set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${program} PRIVATE ${sanitizers} cuda_emulator ${libraries})
endforeach()

# Threads that share a model, and the parts of the library that could write into it, with the thread sanitizer. Kernels are
# as elsewhere, on one thread each: the sanitizer does not know what OpenMP's threads wait for.
file(GLOB shared_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/autograd/*.cpp ${PROJECT_SOURCE_DIR}/autograd/tape/*.cpp)
add_executable(shared_parameters_sanitized EXCLUDE_FROM_ALL main.cpp autograd/test_shared_parameters.cpp
  reference/check_below.cpp reference/check_gradients.cpp ${shared_sources} ${PROJECT_SOURCE_DIR}/autograd/ops/elementwise.cpp
  ${PROJECT_SOURCE_DIR}/autograd/ops/matmul.cpp ${PROJECT_SOURCE_DIR}/autograd/ops/reduce.cpp)
target_compile_options(shared_parameters_sanitized PRIVATE $<$<CONFIG:Release>:-O1> -g1 -fsanitize=thread)
tapeformer_unite(shared_parameters_sanitized 26)
# Its own copy comes before that of a unit of the library.
target_link_libraries(shared_parameters_sanitized PRIVATE -fsanitize=thread -Wl,-z,muldefs tapeformer doctest::doctest)
tapeformer_test(sanitized/races/autograd/shared_parameters sanitized shared_parameters_sanitized)
set_property(TEST sanitized/races/autograd/shared_parameters APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1
  TSAN_OPTIONS=halt_on_error=1)

add_custom_target(sanitized DEPENDS tapeformer_tests_sanitized train_translation_sanitized shared_parameters_sanitized
  tapeformer_tests_races train_translation_emulated train_language_model_emulated gradcheck_attention_emulated)

# The CPU's tests as if there were no device, a few cases of each kernel on one, and the tests that choose the devices of
# tensors on two.
# Layers and models of kernels would take too long, and so would generation with every cache, whose parts have tests. Costs,
# the search of what formats express, pairs of options and the accuracy of f32 are about numbers and words alone.
set(sources ${TAPEFORMER_TEST_SOURCES} ${TAPEFORMER_EMULATOR_TEST_SOURCES})
list(FILTER sources EXCLUDE REGEX "/(autograd/ops/test_single_precision|nn/(attention/test_cost|formats/test_expression|\
generation/test_generate_cached|transformer/test_causality)|examples/language/test_option_pairs)\\.cpp$")
tapeformer_tests(sanitized/ sanitized tapeformer_tests_sanitized "${sources}" TAPEFORMER_EMULATED_DEVICES=0
  TAPEFORMER_GRADCHECK_ELEMENTS=3)
tapeformer_device_tests(sanitized/emulated sanitized tapeformer_tests_sanitized "autograd/(cuda/|kernels/test_cuda_([^e]|e[^v]))")
list(FILTER apart EXCLUDE REGEX "/test_(across_devices|cuda_graph_cache_(masks|training))")
tapeformer_tests(sanitized/emulated/apart/ sanitized tapeformer_tests_sanitized "${apart}" TAPEFORMER_EMULATED_DEVICES=2)
tapeformer_test(sanitized/examples/refused_translation sanitized
  ${CMAKE_CURRENT_SOURCE_DIR}/examples/refused_translation.sh $<TARGET_FILE:train_translation_sanitized>)
set_property(TEST sanitized/examples/refused_translation APPEND PROPERTY ENVIRONMENT TAPEFORMER_EMULATED_DEVICES=0)
