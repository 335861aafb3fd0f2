# What `cmake --install` puts where, how other projects find it (CMake, pkg-config), and packages made of it (CPack).
# Components: development (headers, library), runtime (a shared library), programs.
include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tapeformer)

install(TARGETS tapeformer EXPORT tapeformer
  ARCHIVE COMPONENT development
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES ${include}/tapeformer.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tapeformer COMPONENT development)
# Without the four of the last line, which only the library's own sources include. Of the internal headers of kernels, the CUDA
# runtime and attention, the loop below installs those that others include.
install(DIRECTORY autograd nn optim data DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tapeformer COMPONENT development
  FILES_MATCHING PATTERN "*.h"
  REGEX "/autograd/(kernels|cuda|ops/attention)$" EXCLUDE
  REGEX "/(autograd/dispatch|ops/ids|mpi_collectives|nccl_engine)\\.h$" EXCLUDE)
foreach(header kernels/elementwise kernels/muon kernels/optim kernels/philox kernels/rotary
    kernels/score_functions kernels/unary_functions kernels/write cuda/graph cuda/readback
    ops/attention/relative_bias ops/attention/sparse_attention)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES autograd/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tapeformer/autograd/${folder}
    COMPONENT development)
endforeach()
install(EXPORT tapeformer NAMESPACE tapeformer:: DESTINATION ${config_folder} FILE tapeformerTargets.cmake
  COMPONENT development)

if(TARGET train_language_model)
  set(programs train_language_model train_translation gradcheck_attention)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH library_folder /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(${programs} PROPERTIES INSTALL_RPATH $ORIGIN/${library_folder})
  endif()
  install(TARGETS ${programs} EXPORT tapeformerPrograms RUNTIME COMPONENT programs)
  install(EXPORT tapeformerPrograms NAMESPACE tapeformer:: DESTINATION ${config_folder} COMPONENT programs)
endif()

get_target_property(kind tapeformer TYPE)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake @ONLY CONTENT [[
# The components say what it was built with: programs, cuda, mpi.
set(tapeformer_programs_FOUND OFF)
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/tapeformerPrograms.cmake)
  set(tapeformer_programs_FOUND ON)
endif()
set(tapeformer_cuda_FOUND @TAPEFORMER_CUDA@)
set(tapeformer_mpi_FOUND @TAPEFORMER_MPI@)
foreach(component IN LISTS tapeformer_FIND_COMPONENTS)
  string(TOUPPER ${component} option)
  if(NOT component MATCHES "^(programs|cuda|mpi)$")
    set(tapeformer_NOT_FOUND_MESSAGE "Tapeformer has no component ${component}; it has programs, cuda and mpi.")
  elseif(tapeformer_FIND_REQUIRED_${component} AND NOT tapeformer_${component}_FOUND)
    set(tapeformer_NOT_FOUND_MESSAGE "Tapeformer in ${CMAKE_CURRENT_LIST_DIR} is without the component ${component}; \
build and install it with -DTAPEFORMER_${option}=ON.")
  endif()
endforeach()
if(tapeformer_NOT_FOUND_MESSAGE)
  set(tapeformer_FOUND OFF)
  return()
endif()

include(CMakeFindDependencyMacro)
find_dependency(OpenMP)
if("@kind@" STREQUAL "STATIC_LIBRARY")
  find_dependency(nlohmann_json)
  if(tapeformer_cuda_FOUND)
    find_dependency(CUDAToolkit)
  endif()
  if(tapeformer_mpi_FOUND)
    find_dependency(MPI COMPONENTS CXX)
  endif()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/tapeformerTargets.cmake)
if(tapeformer_programs_FOUND)
  include(${CMAKE_CURRENT_LIST_DIR}/tapeformerPrograms.cmake)
endif()
if(NOT TARGET tapeformer)  # else the linker would look for a library of the system
  add_library(tapeformer INTERFACE IMPORTED)
  set_target_properties(tapeformer PROPERTIES INTERFACE_LINK_LIBRARIES tapeformer::tapeformer
    DEPRECATION "Link tapeformer::tapeformer, which is what the installed library is called.")
endif()
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake ${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT development)

# For pkg-config: paths from where the file lies, so that the installed tree may be moved. A program that links
# the static library links all that it needs.
set(libraries "")
if(kind STREQUAL "STATIC_LIBRARY")
  get_target_property(libraries tapeformer LINK_LIBRARIES)
  list(FILTER libraries EXCLUDE REGEX "tapeformer_flags|nlohmann_json|OpenMP")
  list(TRANSFORM libraries REPLACE "^\\$<LINK_ONLY:MPI::MPI_CXX>$" "${MPI_CXX_LIBRARIES}")
  list(TRANSFORM libraries REPLACE "^CUDA::cudart_static$" "${CUDA_cudart_static_LIBRARY};-lrt;-lpthread")
  list(TRANSFORM libraries REPLACE "^dl$" "-ldl")
endif()
list(JOIN libraries " " libraries)
set(defines "")
if(TAPEFORMER_CUDA)
  set(defines -DTAPEFORMER_CUDA)
endif()
file(RELATIVE_PATH prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix ${prefix})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tapeformer.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: tapeformer
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir} @OpenMP_CXX_FLAGS@ @defines@
Libs: -L${libdir} -ltapeformer @OpenMP_CXX_FLAGS@ @libraries@
]])
install(FILES ${PROJECT_BINARY_DIR}/tapeformer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
if(PROJECT_IS_TOP_LEVEL)
  include(examples/packaging/debian.cmake)
endif()
