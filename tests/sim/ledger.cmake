# The storage of the simulated node, and those who judge ledger, storage and mail.
add_library(qgpu_sim_storage STATIC sim_journal.cc)
target_link_libraries(qgpu_sim_storage PUBLIC qgpu_sim_product PRIVATE qgpu_flags)

# They share types with the product, and no code.
add_library(qgpu_sim_ledger_checks STATIC
  check_ledger.cc check_mail.cc check_rates.cc check_requests.cc check_storage.cc ledger_model.cc)
target_link_libraries(qgpu_sim_ledger_checks PUBLIC qgpu_schema PkgConfig::CAPNP PRIVATE qgpu_flags)
qgpu_unity(qgpu_sim_ledger_checks)
target_link_libraries(qgpu_sim_world PUBLIC qgpu_sim_ledger_checks)

add_library(qgpu_sim_power STATIC power_loss.cc)
target_link_libraries(qgpu_sim_power PUBLIC qgpu_sim_product PRIVATE qgpu_flags)
