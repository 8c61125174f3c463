# Those who judge cards, gates and guests.
add_library(qgpu_sim_cards STATIC
  card_book.cc card_orders.cc card_shares.cc check_arbiter.cc check_guests.cc check_memory.cc
  check_replay.cc)
target_link_libraries(qgpu_sim_cards PUBLIC qgpu_sim_product PRIVATE qgpu_flags)
qgpu_unity(qgpu_sim_cards)
