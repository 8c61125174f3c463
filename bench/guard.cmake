# What the guard in the kernel adds to opens and ioctls.
add_executable(bench_guard bench_guard.cc)
target_link_libraries(bench_guard PRIVATE qgpu_flags qgpu_guard qgpu_standin_card qgpu_testing)
