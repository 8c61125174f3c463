# The storage of the simulated node, and those who judge ledger, storage and mail.
add_library(qgpu_sim_storage STATIC sim_journal.cc)
target_link_libraries(qgpu_sim_storage PUBLIC qgpu_sim_product PRIVATE qgpu_flags)

# They share types with the product, and no code.
add_library(qgpu_sim_ledger_checks STATIC
  check_ledger.cc check_mail.cc check_requests.cc check_storage.cc ledger_model.cc)
target_link_libraries(qgpu_sim_ledger_checks PUBLIC qgpu_schema PkgConfig::CAPNP PRIVATE qgpu_flags)
