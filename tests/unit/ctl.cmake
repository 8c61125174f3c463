qgpu_test(ctl_test SOURCES ctl_test.cc ctl_program_test.cc
  LIBS qgpu_ctl qgpu_admin qgpu_door_fixture simdjson::simdjson LABELS unit threads)
target_compile_definitions(ctl_test PRIVATE QGPUCTL="$<TARGET_FILE:qgpuctl>")
add_dependencies(ctl_test qgpuctl)
