# Where tasks go in a cluster: how good a choice is and what it costs, the ledger alone.
add_executable(bench_placement bench_placement.cc placement_trace.cc)
target_link_libraries(bench_placement PRIVATE qgpu_flags qgpu_cores)
target_compile_definitions(bench_placement PRIVATE
  QGPU_BENCH_TRACES="${CMAKE_SOURCE_DIR}/../shared/traces")
