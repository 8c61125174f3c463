# Logging and the reading of values: two small libraries beside the loop.
add_library(qgpu_log STATIC ${CMAKE_CURRENT_LIST_DIR}/log.cc)
target_link_libraries(qgpu_log PRIVATE qgpu_flags spdlog::spdlog)
target_include_directories(qgpu_log PUBLIC ${CMAKE_SOURCE_DIR})

# The names of the schemas' enums.
add_library(qgpu_enum_names STATIC ${CMAKE_CURRENT_LIST_DIR}/enum_names.cc)
target_link_libraries(qgpu_enum_names PUBLIC qgpu_schema PkgConfig::CAPNP PRIVATE qgpu_flags)
target_include_directories(qgpu_enum_names PUBLIC ${CMAKE_SOURCE_DIR})

add_library(qgpu_config STATIC ${CMAKE_CURRENT_LIST_DIR}/config.cc)
target_link_libraries(qgpu_config PUBLIC qgpu_schema PRIVATE qgpu_enum_names qgpu_flags)
target_include_directories(qgpu_config PUBLIC ${CMAKE_SOURCE_DIR})

# Files that are written whole or not at all.
add_library(qgpu_whole_file STATIC ${CMAKE_CURRENT_LIST_DIR}/whole_file.cc)
target_link_libraries(qgpu_whole_file PRIVATE qgpu_flags)
target_include_directories(qgpu_whole_file PUBLIC ${CMAKE_SOURCE_DIR})
