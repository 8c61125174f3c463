qgpu_test(metrics_test SOURCES metrics_test.cc
  LIBS qgpu_metrics qgpu_door_fixture LABELS unit threads)
