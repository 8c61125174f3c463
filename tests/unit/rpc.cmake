qgpu_test(rpc_test SOURCES rpc_server_test.cc LIBS qgpu_rpc qgpu_door_fixture LABELS unit)
