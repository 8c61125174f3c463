qgpu_test(roster_test SOURCES roster_test.cc LIBS qgpu_attach LABELS unit)
qgpu_test(task_pages_test SOURCES task_pages_test.cc LIBS qgpu_attach LABELS unit threads)
qgpu_test(process_test SOURCES process_test.cc LIBS qgpu_attach LABELS unit)
qgpu_test(survivors_test SOURCES survivors_test.cc LIBS qgpu_attach LABELS unit threads)
add_library(qgpu_attach_fixture STATIC attach_fixture.cc)
target_link_libraries(qgpu_attach_fixture
  PUBLIC qgpu_attach_testing GTest::gtest PRIVATE qgpu_flags)
qgpu_test(attach_server_test
  SOURCES attach_server_test.cc attach_door_test.cc attach_welcome_test.cc
  LIBS qgpu_attach_fixture LABELS unit threads)
qgpu_test(page_search_test SOURCES page_search_test.cc
  LIBS qgpu_attach_fixture LABELS unit threads)
qgpu_test(gate_port_test SOURCES gate_port_test.cc
  LIBS qgpu_attach_fixture LABELS unit threads
  TIMING GatePortTest.A11_TheDeathOfAHolderIsToldBeforeItsMemoryIsTornDown)
qgpu_test(gate_port_rm_test SOURCES gate_port_rm_test.cc
  LIBS qgpu_attach_fixture LABELS unit threads)
qgpu_test(unheld_test SOURCES unheld_test.cc
  LIBS qgpu_attach_fixture LABELS unit threads)
