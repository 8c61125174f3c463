# suspend=rm without a driver: what the manager's own part of a hold takes.
add_executable(bench_suspend bench_suspend.cc)
target_link_libraries(bench_suspend PRIVATE qgpu_flags qgpu_suspend)
