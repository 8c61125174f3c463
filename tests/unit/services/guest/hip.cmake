# AMD cards without one: what is known of HIP beside AMD's header where there is one, and libqgpu.so
# in programs that run on the stand-in of its runtime.
find_file(QGPU_HIP_HEADER hip/hip_runtime_api.h PATHS /opt/rocm/include)
qgpu_test(hip_abi_test SOURCES hip/hip_abi_test.cc LABELS unit)
target_compile_definitions(hip_abi_test PRIVATE
  QGPU_HIP_SYMBOLS="${CMAKE_CURRENT_SOURCE_DIR}/hip/hip_symbols.txt")
if(QGPU_HIP_HEADER)
  get_filename_component(hip_include ${QGPU_HIP_HEADER} DIRECTORY)
  target_include_directories(hip_abi_test SYSTEM PRIVATE ${hip_include}/..)
  target_compile_definitions(hip_abi_test PRIVATE QGPU_HIP_HEADER="${QGPU_HIP_HEADER}")
endif()

foreach(program hip_program hip_linked_program)
  add_executable(${program} hip/hip_program.cc)
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${program} PRIVATE -O0)
  target_link_libraries(${program} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT TARGET qgpu_guest_sanitized)
    target_compile_options(${program} PRIVATE -Wall -Wextra -Werror -fno-sanitize=all)
    target_link_options(${program} PRIVATE -fno-sanitize=all)
  endif()
endforeach()
target_compile_definitions(hip_linked_program PRIVATE QGPU_HIP_LINKED)
target_link_libraries(hip_linked_program PRIVATE hip_stand_in)
qgpu_test(guest_hip_test ${plain} SOURCES hip/guest_hip_test.cc LIBS guest_fixture qgpu_stand_in
  LABELS unit threads)
target_compile_definitions(guest_hip_test PRIVATE
  QGPU_HIP_STAND_IN_DIR="$<TARGET_FILE_DIR:hip_stand_in>"
  QGPU_HIP_PROGRAM="$<TARGET_FILE:hip_program>"
  QGPU_HIP_LINKED_PROGRAM="$<TARGET_FILE:hip_linked_program>")
add_dependencies(guest_hip_test hip_program hip_linked_program)
if(TARGET qgpu_guest_sanitized)  # their program keeps some memory to its end
  set_property(TEST guest_hip_test PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
