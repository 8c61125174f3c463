# Taking channels off a card: the decisions, over every order of what may happen; and the calls, by
# real processes on the stand-ins of the drivers.
qgpu_test(suspend_ladder_test SOURCES suspend_ladder_test.cc suspend_story_test.cc
  LIBS qgpu_suspend LABELS unit)
qgpu_test(suspender_test SOURCES suspender_test.cc LIBS qgpu_suspend LABELS unit threads)

# It is a client of the kernel driver itself, so it is preloaded from its start.
qgpu_test(suspend_self_test_test SOURCES suspend_self_test_test.cc
  LIBS qgpu_suspend rm_test_driver LABELS e2e)
add_dependencies(suspend_self_test_test qgpu-suspend-probe rm_stand_in cuda_stand_in)
set_tests_properties(suspend_self_test_test PROPERTIES RUN_SERIAL ON ENVIRONMENT
  "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/lib/stand_in;LD_PRELOAD=$<TARGET_FILE:rm_stand_in>")

qgpu_test(nvidia_suspend_test SOURCES nvidia_suspend_test.cc
  LIBS qgpu_cards qgpu_suspend qgpu_whole_file rm_test_driver LABELS e2e)
add_dependencies(nvidia_suspend_test qgpu-suspend-probe rm_stand_in cuda_stand_in)
set_tests_properties(nvidia_suspend_test PROPERTIES RUN_SERIAL ON ENVIRONMENT
  "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/lib/stand_in;LD_PRELOAD=$<TARGET_FILE:rm_stand_in>")
