# Real programs under a real manager: the work that a share gives, beside the same without qgpu.
add_executable(bench_work_share bench_work_share.cc)
target_link_libraries(bench_work_share PRIVATE qgpu_flags qgpu_demo)
add_dependencies(bench_work_share qgpu-work qgpu-manager qgpuctl qgpu_guest)
