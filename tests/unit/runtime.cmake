qgpu_test(runtime_dispatcher_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dispatcher_test.cc
  LIBS qgpu_runtime
  LABELS unit)
