qgpu_test(ctl_test SOURCES ctl_test.cc completion_test.cc ctl_program_test.cc
  LIBS qgpu_ctl qgpu_admin qgpu_api_fixture simdjson::simdjson LABELS unit threads)
qgpu_test(ctl_server_test SOURCES ctl_server_test.cc
  LIBS qgpu_rpc qgpu_api_fixture LABELS unit)
qgpu_test(doctor_test SOURCES doctor_test.cc LIBS qgpu_ctl qgpu_webhook LABELS unit threads)
# Pages that are made of what the programs hold; QGPU_WRITE_REFERENCE=1 writes them anew.
qgpu_test(reference_test SOURCES reference_test.cc
  LIBS qgpu_ctl qgpu_admin qgpu_options simdjson::simdjson LABELS unit)
target_compile_definitions(reference_test PRIVATE QGPU_SOURCE_ROOT="${CMAKE_SOURCE_DIR}")
foreach(test ctl_test ctl_server_test doctor_test)
  target_compile_definitions(${test} PRIVATE QGPUCTL="$<TARGET_FILE:qgpuctl>")
  add_dependencies(${test} qgpuctl)
endforeach()
