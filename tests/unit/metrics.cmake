qgpu_test(metrics_test SOURCES metrics_test.cc
  LIBS qgpu_metrics qgpu_api_fixture LABELS unit threads)
