# What a process says to NVIDIA's kernel driver: the pure parts of libqgpu.so that read and count
# it.
set(rm_sources
  ${CMAKE_SOURCE_DIR}/services/nvidia_abi/rm_decode.cc
  ${CMAKE_SOURCE_DIR}/services/nvidia_abi/rm_files.cc
  ${CMAKE_SOURCE_DIR}/services/nvidia_abi/rm_objects.cc)
qgpu_test(rm_test SOURCES rm_abi_test.cc rm_decode_test.cc rm_files_test.cc
  rm_objects_test.cc ${rm_sources}
  LABELS unit)
target_compile_definitions(rm_test PRIVATE
  QGPU_RM_ABI_FIXTURE="${CMAKE_CURRENT_SOURCE_DIR}/fixtures/rm_abi.txt")

qgpu_test(loans_test SOURCES loans_test.cc LABELS unit threads)
qgpu_test(fork_handlers_test SOURCES fork_handlers_test.cc LABELS unit threads)
qgpu_test(wrapper_table_test SOURCES wrapper_table_test.cc LABELS unit threads)

# The interposer in the test's own program. It is never built with a sanitizer, whose own ioctl()
# and close() would be in its place.
qgpu_test(rm_events_test PLAIN SOURCES rm_events_test.cc ${rm_sources}
  ${CMAKE_SOURCE_DIR}/services/guest/gate/real_loader.cc
  ${CMAKE_SOURCE_DIR}/services/guest/gate/driver_files.cc
  ${CMAKE_SOURCE_DIR}/services/guest/gate/lending.cc
  ${CMAKE_SOURCE_DIR}/services/nvidia_abi/rm_card.cc
  ${CMAKE_SOURCE_DIR}/services/guest/rm/rm_ioctl.cc
  ${CMAKE_SOURCE_DIR}/services/guest/gate/sys.cc
  LIBS nvkernel_stand_in ${CMAKE_DL_LIBS} LABELS unit)
target_compile_definitions(rm_events_test PRIVATE QGPU_TEST_HOOKS)
target_compile_options(rm_events_test PRIVATE -fno-sanitize=all)
target_link_options(rm_events_test PRIVATE -fno-sanitize=all -Wl,--no-as-needed)
