# A scheduler and nodes on a seeded network.
add_library(qgpu_sim_cluster_checks STATIC check_cluster.cc)
target_link_libraries(qgpu_sim_cluster_checks
  PUBLIC qgpu_sim_ledger_checks qgpu_schema PkgConfig::CAPNP PRIVATE qgpu_flags)

target_sources(qgpu_sim_world PRIVATE
  cluster_clients.cc cluster_net.cc cluster_options.cc cluster_room.cc cluster_tap.cc
  cluster_world.cc)
target_link_libraries(qgpu_sim_world PUBLIC qgpu_sim_cluster_checks)

add_test(NAME sim_cluster COMMAND qgpu-sim --cluster --seeds 1..64 --twice --quiet)
set_tests_properties(sim_cluster PROPERTIES LABELS sim RUN_SERIAL ON TIMEOUT 600)
