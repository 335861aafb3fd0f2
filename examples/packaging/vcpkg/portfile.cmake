# An overlay port builds the checkout that it lies in; in a registry vcpkg_from_git() sets SOURCE_PATH.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
  cuda TAPEFORMER_CUDA
  programs TAPEFORMER_PROGRAMS)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DTAPEFORMER_NATIVE=OFF -DTAPEFORMER_TESTS=OFF -DTAPEFORMER_INSTALL=ON
  OPTIONS_DEBUG -DTAPEFORMER_PROGRAMS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tapeformer)
vcpkg_fixup_pkgconfig()
if("programs" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES train_language_model train_translation gradcheck_attention AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
