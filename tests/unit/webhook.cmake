# The admission webhook: what it says, its certificates, and both over real HTTPS.
qgpu_test(webhook_test
  SOURCES webhook_admission_test.cc webhook_certificates_test.cc webhook_test.cc
    webhook_program_test.cc allocated_bytes.cc
  LIBS qgpu_webhook qgpu_kube_testing LABELS unit)
target_compile_definitions(webhook_test PRIVATE QGPU_SCHEDULER="$<TARGET_FILE:qgpu-scheduler>")
add_dependencies(webhook_test qgpu-scheduler)
