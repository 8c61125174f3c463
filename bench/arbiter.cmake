# The arbiter alone: what a decision costs.
add_executable(bench_arbiter bench_arbiter.cc)
target_link_libraries(bench_arbiter PRIVATE qgpu_flags qgpu_cores)
