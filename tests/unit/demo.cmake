# The demo's arithmetic, pictures and documents; its workload on the real OpenCL device.
qgpu_test(demo_figures_test SOURCES demo_figures_test.cc LIBS qgpu_demo simdjson::simdjson
          LABELS unit)
qgpu_test(demo_stage_test SOURCES demo_stage_test.cc LIBS qgpu_demo LABELS unit threads)
qgpu_test(demo_work_test SOURCES demo_work_test.cc LIBS qgpu_work qgpu_demo LABELS unit threads)
