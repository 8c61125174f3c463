# The scripted node that the tests of all clients ask.
add_library(qgpu_api_fixture STATIC scripted_node.cc scripted_cluster.cc)
target_link_libraries(qgpu_api_fixture PUBLIC qgpu_actor_client PRIVATE qgpu_flags)

qgpu_test(admin_test
  SOURCES json_test.cc commands_test.cc node_door_test.cc cluster_door_test.cc admin_server_test.cc
    cluster_admin_test.cc
  LIBS qgpu_admin qgpu_api_fixture simdjson::simdjson LABELS unit threads)
