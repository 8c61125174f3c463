# Taking channels off a card: the decisions, over every order of what may happen.
qgpu_test(suspend_ladder_test SOURCES suspend_ladder_test.cc LIBS qgpu_suspend LABELS unit)
