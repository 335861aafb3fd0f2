# Where the library is built for any AVX2 machine (-DTAPEFORMER_NATIVE=OFF, as in continuous integration), the kernels once more
# for two others, under the tests of their results: with every instruction of this machine, and for vectors of 128 bits, which
# hold two doubles, as on 64-bit Arm.
if(TAPEFORMER_NATIVE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()
set(kernels ${TAPEFORMER_SOURCES})
list(FILTER kernels INCLUDE REGEX "/kernels/cpu/")
set(sources ${TAPEFORMER_TEST_SOURCES})
list(FILTER sources INCLUDE REGEX "/tests/(autograd/(ops|kernels)|optim|nn/attention)/")
foreach(machine native x86-64-v2)
  add_library(march_${machine} INTERFACE)
  target_compile_options(march_${machine} INTERFACE -march=${machine})
  add_library(kernels_${machine} OBJECT ${kernels})
  target_compile_definitions(kernels_${machine} PRIVATE $<TARGET_PROPERTY:tapeformer,COMPILE_DEFINITIONS>)
  target_include_directories(kernels_${machine} PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_include_directories(kernels_${machine} SYSTEM PRIVATE $<TARGET_PROPERTY:tapeformer,INCLUDE_DIRECTORIES>)
  # The last -march counts: a target's own options come before those of what it links.
  target_link_libraries(kernels_${machine} PRIVATE tapeformer_flags march_${machine} OpenMP::OpenMP_CXX)
  # Its objects come first, and so replace the archive's.
  add_executable(tapeformer_tests_${machine} $<TARGET_OBJECTS:kernels_${machine}> $<TARGET_OBJECTS:tapeformer_tests> ${parsers})
  target_link_libraries(tapeformer_tests_${machine} PRIVATE tapeformer_programs doctest::doctest)
  tapeformer_tests(${machine}/ everything tapeformer_tests_${machine} "${sources}" TAPEFORMER_GRADCHECK_ELEMENTS=3)
  list(FILTER sources EXCLUDE REGEX "test_single_precision")  # its bounds are those of fused products, as in its own build
endforeach()
