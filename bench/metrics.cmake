# A scrape of a manager with many cards.
add_executable(bench_metrics bench_metrics.cc)
target_link_libraries(bench_metrics PRIVATE qgpu_flags qgpu_testing qgpu_runtime)
add_dependencies(bench_metrics qgpu-manager)
