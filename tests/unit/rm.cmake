# What a process says to NVIDIA's kernel driver: the pure parts of libqgpu.so that read and count
# it.
set(rm_sources
  ${CMAKE_SOURCE_DIR}/services/guest/rm_decode.cc
  ${CMAKE_SOURCE_DIR}/services/guest/rm_files.cc
  ${CMAKE_SOURCE_DIR}/services/guest/rm_objects.cc)
qgpu_test(rm_test SOURCES rm_abi_test.cc rm_decode_test.cc rm_files_test.cc
  rm_objects_test.cc ${rm_sources}
  LABELS unit)
target_compile_definitions(rm_test PRIVATE
  QGPU_RM_ABI_FIXTURE="${CMAKE_CURRENT_SOURCE_DIR}/fixtures/rm_abi.txt")
