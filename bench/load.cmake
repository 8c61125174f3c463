# Simulated tenants under a real manager: slices a second, preemption, what the manager costs.
add_executable(bench_load bench_load.cc load_tenant.cc load_manager.cc)
target_link_libraries(bench_load PRIVATE qgpu_flags qgpu_attach_testing qgpu_ctl)
