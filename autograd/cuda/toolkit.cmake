# The CUDA backend of the library: needs nvcc, the runtime and cuBLASLt of the CUDA Toolkit, 12 or newer.
set(TAPEFORMER_CUDA_ARCHITECTURES "80-real;90-real;90a-real;90-virtual" CACHE STRING
  "GPUs to compile for, as CMAKE_CUDA_ARCHITECTURES; newer ones translate what is virtual when a program starts")
set(TAPEFORMER_CUDA_FLAGS "" CACHE STRING "Further flags of nvcc; not for what is compiled for compute capability 9.0 alone")
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TAPEFORMER_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT TAPEFORMER_NVCC)
    message(FATAL_ERROR "TAPEFORMER_CUDA=ON needs the CUDA Toolkit, 12 or newer, and there is no nvcc on PATH or in "
      "/usr/local/cuda/bin; install it, say where nvcc is (-DCMAKE_CUDA_COMPILER=...), or build without CUDA")
  endif()
  set(CMAKE_CUDA_COMPILER ${TAPEFORMER_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${TAPEFORMER_CUDA_ARCHITECTURES})
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "TAPEFORMER_CUDA=ON needs the CUDA Toolkit, 12 or newer; got ${CMAKE_CUDA_COMPILER_VERSION} "
    "(${CMAKE_CUDA_COMPILER})")
endif()
find_package(CUDAToolkit 12 REQUIRED)

# What needs instructions of compute capability 9.0 alone is compiled for it alone, and called there alone.
set(hopper_sources ${TAPEFORMER_CUDA_SOURCES})
list(FILTER hopper_sources INCLUDE REGEX "/hopper/[^/]*\\.cu$")
list(REMOVE_ITEM TAPEFORMER_CUDA_SOURCES ${hopper_sources})
# Of NCCL only the header is needed; toolkits of some systems come without it.
find_path(TAPEFORMER_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
set(cuda_sources ${TAPEFORMER_CUDA_SOURCES})
if(TAPEFORMER_NCCL_INCLUDE)
  set_source_files_properties(${TAPEFORMER_NCCL_SOURCES} PROPERTIES INCLUDE_DIRECTORIES "${TAPEFORMER_NCCL_INCLUDE}")
else()
  message(WARNING "nccl.h (libnccl-dev) was not found: programs will train on one GPU, not on several")
  list(REMOVE_ITEM cuda_sources ${TAPEFORMER_NCCL_SOURCES})
  list(APPEND cuda_sources ${PROJECT_SOURCE_DIR}/autograd/communication/nccl_absent.cpp)
endif()
add_library(tapeformer_hopper OBJECT ${hopper_sources})
target_include_directories(tapeformer_hopper PRIVATE ${PROJECT_BINARY_DIR}/include)
target_sources(tapeformer PRIVATE $<TARGET_OBJECTS:tapeformer_hopper>)
target_sources(tapeformer_core INTERFACE $<TARGET_OBJECTS:tapeformer_hopper>)  # for programs that link these objects alone
target_sources(tapeformer_core PRIVATE ${cuda_sources})
list(APPEND TAPEFORMER_CUDA_SOURCES ${hopper_sources})
set_target_properties(tapeformer_core PROPERTIES CUDA_ARCHITECTURES "${TAPEFORMER_CUDA_ARCHITECTURES}")
set_target_properties(tapeformer_hopper PROPERTIES CUDA_ARCHITECTURES "90a-real" POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(tapeformer_usage INTERFACE TAPEFORMER_CUDA)
target_compile_definitions(tapeformer_core PUBLIC TAPEFORMER_CUDA)
target_compile_definitions(tapeformer PUBLIC TAPEFORMER_CUDA)
foreach(target tapeformer_core tapeformer_hopper)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
    CUDA_COMPILER_LAUNCHER "${CMAKE_CUDA_COMPILER_LAUNCHER}")  # the targets are older than the language
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>")
  if(TAPEFORMER_WERROR)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
  endif()
endforeach()
target_compile_options(tapeformer_core PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${TAPEFORMER_CUDA_FLAGS}>")
# cuBLASLt and NCCL are loaded when they are needed: from where programs find libraries, where cuBLASLt lies here, or where a
# toolkit has them.
get_filename_component(cuda_libraries "${CUDA_cublasLt_LIBRARY}" DIRECTORY)
set_source_files_properties(autograd/kernels/cuda/cublaslt_functions.cpp autograd/cuda/nccl_functions.cpp PROPERTIES COMPILE_DEFINITIONS
  TAPEFORMER_CUDA_LIBRARIES="${cuda_libraries}")
foreach(part tapeformer_core tapeformer)
  target_link_libraries(${part} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endforeach()

# All of the library in a program that does nothing, and what train_translation takes of it in another: they do not link where
# something is called that is not there.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/whole.cpp CONTENT "int main() {}\n")
add_executable(tapeformer_whole EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/whole.cpp)
target_link_libraries(tapeformer_whole PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,tapeformer>)
add_executable(tapeformer_whole_core EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/whole.cpp)
target_link_libraries(tapeformer_whole_core PRIVATE tapeformer_core)
