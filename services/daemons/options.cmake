# Where a program runs; also for qgpuctl.
add_library(qgpu_surroundings STATIC ${CMAKE_CURRENT_LIST_DIR}/surroundings.cc)
target_link_libraries(qgpu_surroundings PRIVATE qgpu_flags)

# Flags and config files of the daemons.
add_library(qgpu_options STATIC ${CMAKE_CURRENT_LIST_DIR}/flags.cc
  ${CMAKE_CURRENT_LIST_DIR}/options.cc ${CMAKE_CURRENT_LIST_DIR}/scheduler_options.cc)
target_compile_definitions(qgpu_options PRIVATE QGPU_VERSION="${PROJECT_VERSION}")
# The reader of Cap'n Proto text lives in the library of the capnp compiler.
target_link_libraries(qgpu_options
  PUBLIC qgpu_surroundings qgpu_config qgpu_cards qgpu_log qgpu_pod_rules PkgConfig::CAPNP
    PkgConfig::KJ_TLS
  PRIVATE qgpu_flags qgpu_rpc qgpu_kubelet_core PkgConfig::CAPNPC)
