qgpu_test(rpc_test
  SOURCES rpc_server_test.cc paced_stream_test.cc
  LIBS qgpu_rpc qgpu_api_fixture LABELS unit threads)
qgpu_test(rpc_cluster_test
  SOURCES rpc_links_test.cc rpc_scheduler_test.cc rpc_tls_test.cc
  LIBS qgpu_rpc qgpu_api_fixture LABELS unit threads)
target_compile_definitions(rpc_cluster_test PRIVATE QGPU_EXAMPLE="$<TARGET_FILE:qgpu-example>")
add_dependencies(rpc_cluster_test qgpu-example)
