qgpu_test(http_server_test SOURCES http_server_test.cc
  LIBS qgpu_http qgpu_rpc qgpu_api_fixture LABELS unit threads)
