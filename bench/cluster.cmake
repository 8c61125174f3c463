# A whole cluster of real daemons: submits per second, and what ten thousand nodes cost a scheduler.
add_library(qgpu_cluster_load STATIC
  cluster_client.cc cluster_daemons.cc members.cc plain_node.cc submit_limits.cc)
target_link_libraries(qgpu_cluster_load
  PUBLIC qgpu_rpc qgpu_testing qgpu_load PRIVATE qgpu_flags qgpu_actors qgpu_store)
foreach(claim submit scheduler_scale)
  add_executable(bench_${claim} bench_${claim}.cc)
  target_link_libraries(bench_${claim} PRIVATE qgpu_flags qgpu_cluster_load)
  add_dependencies(bench_${claim} qgpu-scheduler qgpu-manager)
endforeach()
