# The manager as a process: its folder, its addresses, what it keeps over a restart.
qgpu_test(manager_test
  SOURCES manager_test.cc run_dir_test.cc ${CMAKE_SOURCE_DIR}/services/base/run_dir.cc
  LIBS qgpu_e2e LABELS unit threads)
add_dependencies(manager_test qgpu-manager)
qgpu_test(extender_door_test
  SOURCES extender_door_test.cc ${CMAKE_SOURCE_DIR}/services/daemons/extender_server.cc
  LIBS qgpu_http qgpu_live_tls qgpu_log qgpu_api_fixture LABELS unit threads)
qgpu_test(live_tls_test
  SOURCES live_tls_test.cc
  LIBS qgpu_live_tls qgpu_api_fixture LABELS unit threads)
qgpu_test(card_watch_test
  SOURCES card_watch_test.cc ${CMAKE_SOURCE_DIR}/services/daemons/card_watch.cc
  LIBS qgpu_cards qgpu_log qgpu_stand_in qgpu_api_fixture LABELS unit threads)
set_tests_properties(card_watch_test PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/lib/stand_in")
