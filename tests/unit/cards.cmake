qgpu_test(cards_test SOURCES cards_test.cc LIBS qgpu_cards LABELS unit)
qgpu_test(child_probe_test SOURCES child_probe_test.cc LIBS qgpu_cards qgpu_processes LABELS unit)
