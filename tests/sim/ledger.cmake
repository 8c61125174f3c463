# The storage of the simulated node, and those who judge ledger, storage and mail.
add_library(qgpu_sim_storage STATIC sim_journal.cc)
target_link_libraries(qgpu_sim_storage PUBLIC qgpu_sim_product PRIVATE qgpu_flags)
