qgpu_test(yaml_test SOURCES yaml_test.cc LIBS qgpu_yaml LABELS unit)
