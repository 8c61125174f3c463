qgpu_test(cards_test SOURCES cards_test.cc LIBS qgpu_cards LABELS unit)
