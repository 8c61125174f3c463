qgpu_test(runtime_loop_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/loop_test.cc
  LIBS qgpu_runtime
  LABELS unit threads
  TIMING Loop.HAZARDS24_ARealtimeLoopThatPreemptsItsWakerDoesNotWaitForIt)
qgpu_test(runtime_dispatcher_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/dispatcher_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/mailbox_ring_test.cc
  LIBS qgpu_runtime
  LABELS unit threads)
qgpu_test(runtime_fixture_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fixture_test.cc
  LIBS qgpu_testing
  LABELS unit)
qgpu_test(runtime_kj_bridge_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/kj_bridge_test.cc
  LIBS qgpu_runtime
  LABELS unit threads
  TIMING KjBridge.TwoFloodingClientsDoNotStarveATimerOfTheLoop)
qgpu_test(runtime_backoff_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/backoff_test.cc
  LIBS qgpu_runtime
  LABELS unit)
