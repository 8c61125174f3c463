# Simulated tenants under a real manager: slices a second, preemption, what the manager costs.
# qgpu_load is the scene and its manager; tests/crash watches it for a long time.
add_library(qgpu_load STATIC load_manager.cc load_scene.cc load_tenant.cc)
target_link_libraries(qgpu_load PUBLIC qgpu_attach_testing qgpu_ctl qgpu_testing PRIVATE qgpu_flags)
add_executable(bench_load bench_load.cc)
target_link_libraries(bench_load PRIVATE qgpu_flags qgpu_load)
