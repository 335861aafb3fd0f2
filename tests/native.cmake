# Where the library is built for any AVX2 machine (-DTAPEFORMER_NATIVE=OFF, as in continuous integration), the kernels once more
# with every instruction of this one, under the tests of their results.
if(TAPEFORMER_NATIVE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()
set(kernels ${TAPEFORMER_SOURCES})
list(FILTER kernels INCLUDE REGEX "/kernels/cpu/")
add_library(tapeformer_native_kernels OBJECT ${kernels})
target_compile_options(tapeformer_native_kernels PRIVATE -march=native)  # after the common flags, and so decisive
target_compile_definitions(tapeformer_native_kernels PRIVATE $<TARGET_PROPERTY:tapeformer,COMPILE_DEFINITIONS>)
target_include_directories(tapeformer_native_kernels PRIVATE ${PROJECT_BINARY_DIR}/include)
target_include_directories(tapeformer_native_kernels SYSTEM PRIVATE $<TARGET_PROPERTY:tapeformer,INCLUDE_DIRECTORIES>)
target_link_libraries(tapeformer_native_kernels PRIVATE tapeformer_flags OpenMP::OpenMP_CXX)
set_source_files_properties(${TAPEFORMER_EXACT_SOURCES} PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

# Its objects come first, and so replace the archive's.
add_executable(tapeformer_tests_native $<TARGET_OBJECTS:tapeformer_native_kernels> $<TARGET_OBJECTS:tapeformer_tests>
  ${parsers})
target_link_libraries(tapeformer_tests_native PRIVATE tapeformer_programs nlohmann_json::nlohmann_json doctest::doctest)
set(sources ${TAPEFORMER_TEST_SOURCES})
list(FILTER sources INCLUDE REGEX "/tests/(autograd/(ops|kernels)|optim|nn/attention)/")
tapeformer_tests(native/ everything tapeformer_tests_native "${sources}" TAPEFORMER_GRADCHECK_ELEMENTS=3)
