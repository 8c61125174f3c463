# NVIDIA cards without one: our declarations beside the toolkit's header where there is one, the
# stand-in driver itself, and libqgpu.so in programs that run on it.
find_file(QGPU_CUDA_HEADER cuda.h PATHS /usr/local/cuda/include)
qgpu_test(cuda_abi_test PLAIN SOURCES cuda/cuda_abi_test.cc LABELS unit)
target_compile_definitions(cuda_abi_test PRIVATE
  QGPU_CUDA_SYMBOLS="${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_symbols.txt"
  QGPU_CUDART_ASKS="${CMAKE_CURRENT_SOURCE_DIR}/cuda/cudart13_asks.txt")
if(QGPU_CUDA_HEADER)
  get_filename_component(cuda_include ${QGPU_CUDA_HEADER} DIRECTORY)
  target_include_directories(cuda_abi_test SYSTEM PRIVATE ${cuda_include})
  target_compile_definitions(cuda_abi_test PRIVATE QGPU_CUDA_HEADER="${QGPU_CUDA_HEADER}")
endif()

# The driver in the test's own process.
qgpu_test(cuda_stand_in_test PLAIN SOURCES cuda/cuda_stand_in_test.cc
  LIBS qgpu_stand_in Threads::Threads ${CMAKE_DL_LIBS} LABELS unit)

# libqgpu.so in a tenant of the stand-in: one program that looks functions up, and one that is
# linked with the driver. They load the library, and have sanitizers where it has. What else they
# load has none.
foreach(program cuda_program cuda_linked_program)
  add_executable(${program} cuda/cuda_program.cc cuda/cuda_resolve.cc cuda/cuda_rm.cc)
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${program} PRIVATE -O0)
  target_link_libraries(${program} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
target_compile_definitions(cuda_linked_program PRIVATE QGPU_CUDA_LINKED)
target_link_libraries(cuda_linked_program PRIVATE cuda_stand_in)
add_library(cuda_deep_library MODULE cuda/cuda_deep_library.cc)
target_include_directories(cuda_deep_library PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(cuda_deep_library PRIVATE cuda_stand_in)
add_library(cuda_old_driver SHARED cuda/cuda_old_driver.cc)
set_target_properties(cuda_old_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/old_driver)
target_link_options(cuda_old_driver PRIVATE -Wl,-soname,libcuda.so.1)
set(plain_targets cuda_deep_library cuda_old_driver)
if(NOT TARGET qgpu_guest_sanitized)
  list(APPEND plain_targets cuda_program cuda_linked_program)
endif()
foreach(target IN LISTS plain_targets)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -fno-sanitize=all)
  target_link_options(${target} PRIVATE -fno-sanitize=all)
endforeach()

add_library(cuda_fixture STATIC cuda/cuda_tenant.cc)
target_link_libraries(cuda_fixture PUBLIC guest_fixture qgpu_stand_in PRIVATE qgpu_flags)
target_compile_definitions(cuda_fixture PUBLIC
  QGPU_CUDA_PROGRAM="$<TARGET_FILE:cuda_program>"
  QGPU_CUDA_LINKED_PROGRAM="$<TARGET_FILE:cuda_linked_program>"
  QGPU_CUDA_DEEP_LIBRARY="$<TARGET_FILE:cuda_deep_library>"
  QGPU_CUDA_OLD_DRIVER_DIR="$<TARGET_FILE_DIR:cuda_old_driver>")
add_dependencies(cuda_fixture cuda_program cuda_linked_program cuda_deep_library cuda_old_driver)
qgpu_test(guest_cuda_test ${plain}
  SOURCES cuda/guest_cuda_hooks_test.cc cuda/guest_cuda_memory_test.cc cuda/guest_cuda_rm_test.cc
    cuda/guest_cuda_streams_test.cc nvml/guest_nvml_test.cc
  LIBS cuda_fixture LABELS unit threads
  TIMING CudaStreams.AContendedWindowHoldsWhatIsUnknownAndLearnsIt
    CudaStreams.TheWindowHoldsAlsoWhereMoreFitIntoItThanAStreamHasMarkers)

# Memory that leaves the card: kernels there touch every word, and end the program where none is.
qgpu_test(guest_paging_test ${plain}
  SOURCES cuda/guest_cuda_paging_test.cc
  LIBS cuda_fixture LABELS unit threads)

# Channels that others may take off the card: on the kernel's stand-in that all processes share.
# And memory of it that several of them hold.
qgpu_test(guest_channels_test ${plain}
  SOURCES cuda/guest_cuda_shared_test.cc rm/guest_channels_test.cc
  LIBS cuda_fixture rm_state LABELS unit threads
  TIMING GuestChannels.AManagerThatDoesNotReadKeepsNobodyAndIsToldAllLater
    GuestChannels.ADriverThatRefusesIsAskedEverMoreSeldom)
target_compile_definitions(guest_channels_test PRIVATE
  QGPU_RM_STAND_IN="$<TARGET_FILE:rm_stand_in>")
add_dependencies(guest_channels_test rm_stand_in)

if(TARGET qgpu_guest_sanitized)  # their program keeps some memory to its end
  set_property(TEST guest_cuda_test guest_cuda_test_timing guest_paging_test guest_channels_test
    guest_channels_test_timing PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
