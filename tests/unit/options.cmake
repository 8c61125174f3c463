# What the daemons read before they start: values, flags, config files; and how they log.
qgpu_test(log_test SOURCES log_test.cc LIBS qgpu_log LABELS unit threads)
qgpu_test(config_test SOURCES config_test.cc LIBS qgpu_config LABELS unit)
qgpu_test(options_test
  SOURCES options_test.cc scheduler_options_test.cc LIBS qgpu_options LABELS unit)
