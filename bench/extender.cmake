# What a cycle of kube-scheduler costs: its questions over HTTP to the extender on a real scheduler.
add_executable(bench_extender bench_extender.cc
  ${CMAKE_SOURCE_DIR}/tests/unit/services/kubernetes/extender/extender_world.cc)
target_link_libraries(bench_extender PRIVATE qgpu_flags qgpu_extender qgpu_store qgpu_api_fixture
  GTest::gtest)
