# The dispatcher beside CAF, the C++ actor framework of Debian; left out where CAF is not installed.
find_path(CAF_INCLUDE caf/all.hpp)
find_library(CAF_CORE caf_core)
if(CAF_INCLUDE AND CAF_CORE)
  add_executable(bench_dispatch ${CMAKE_CURRENT_LIST_DIR}/bench_dispatch.cc
                                ${CMAKE_CURRENT_LIST_DIR}/bench_dispatch_caf.cc)
  target_include_directories(bench_dispatch SYSTEM PRIVATE ${CAF_INCLUDE})
  target_link_libraries(bench_dispatch PRIVATE qgpu_flags qgpu_runtime ${CAF_CORE})
endif()
