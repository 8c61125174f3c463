# What a card's trace costs its actor.
add_executable(bench_trace bench_trace.cc)
target_link_libraries(bench_trace PRIVATE qgpu_flags qgpu_actors)
