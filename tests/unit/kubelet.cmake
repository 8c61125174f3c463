# The device plugin: its decisions, and the whole of it against a kubelet that a test plays.
qgpu_test(kubelet_core_test
  SOURCES kubelet_core_test.cc container_files_test.cc
  LIBS qgpu_kubelet_core qgpu_processes LABELS unit)
qgpu_test(container_room_test SOURCES container_room_test.cc LIBS qgpu_node_agent LABELS unit)
