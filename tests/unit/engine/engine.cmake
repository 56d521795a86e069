mayfly_test(unit_engine LABEL unit
  SOURCES audit_test.cpp bucket_tuner_test.cpp chaos_plan_test.cpp checkpoint_schedule_test.cpp
          checkpoint_transfer_test.cpp child_process_test.cpp cloud_startup_test.cpp
          cloud_test.cpp
          coordinator_process_test.cpp data_transfer_test.cpp device_fit_test.cpp
          device_wire_test.cpp
          gradient_sums_test.cpp gradient_wire_test.cpp
          host_copy_test.cpp initial_weights_test.cpp job_facts_test.cpp launched_by_test.cpp
          member_logs_test.cpp member_records_test.cpp mixed_devices_test.cpp
          network_interface_test.cpp observer_test.cpp peer_reach_test.cpp pmi_channel_test.cpp
          ps_reach_test.cpp ps_roles_test.cpp server_places_test.cpp
          ps_server_test.cpp ps_servers_test.cpp records_test.cpp
          reduction_layout_test.cpp rejoin_limit_test.cpp state_parts_test.cpp state_sync_test.cpp
          trace_test.cpp worker_link_test.cpp
  LIBS mayfly_engine mayfly_nn_cuda Boost::json)
