# What a person waits for who types a command.
add_executable(bench_qgpuctl bench_qgpuctl.cc)
target_link_libraries(bench_qgpuctl PRIVATE qgpu_flags qgpu_testing)
add_dependencies(bench_qgpuctl qgpuctl qgpu-manager qgpu-scheduler)
