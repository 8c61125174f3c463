# A cluster's nodes and pods, listed, followed and listed again.
add_executable(bench_kube_watch bench_kube_watch.cc)
target_link_libraries(bench_kube_watch PRIVATE qgpu_flags qgpu_kube qgpu_kube_testing qgpu_testing)
