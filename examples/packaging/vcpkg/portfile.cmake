# TAPEFORMER_SOURCE in the environment is a checkout; a port in a registry has vcpkg_from_git() here.
if(NOT DEFINED ENV{TAPEFORMER_SOURCE})
  message(FATAL_ERROR "Set TAPEFORMER_SOURCE to the folder of Tapeformer's sources, and name it in VCPKG_KEEP_ENV_VARS.")
endif()
set(SOURCE_PATH "$ENV{TAPEFORMER_SOURCE}")
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
  cuda TAPEFORMER_CUDA
  programs TAPEFORMER_PROGRAMS)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DTAPEFORMER_NATIVE=OFF -DTAPEFORMER_TESTS=OFF -DTAPEFORMER_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME tapeformer CONFIG_PATH lib/cmake/tapeformer)
vcpkg_fixup_pkgconfig()
if("programs" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES train_language_model train_translation gradcheck_attention AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
