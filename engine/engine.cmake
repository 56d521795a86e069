mayfly_library(engine
  SOURCES cloud/cloud.cpp cloud/cloud_plan.cpp cloud/cloud_startup.cpp
          faults/chaos_plan.cpp faults/duty_cycle.cpp faults/injector.cpp faults/state_faults.cpp
          launch/coordinator_main.cpp launch/launched_by.cpp launch/launched_rank.cpp
          launch/local_launcher.cpp launch/pmi_channel.cpp launch/pmix_channel.cpp
          launch/rank_marks.cpp
          parameter_server/ps_job.cpp parameter_server/ps_link.cpp parameter_server/ps_reach.cpp
          parameter_server/ps_server.cpp parameter_server/ps_snapshot.cpp
          parameter_server/ps_trainer.cpp parameter_server/ps_trainer_links.cpp
          parameter_server/sgd_shard.cpp
          processes/child_process.cpp processes/coordinator_commands.cpp
          processes/coordinator_options.cpp
          processes/coordinator_process.cpp processes/data_source.cpp processes/exit_codes.cpp
          processes/job_settings.cpp processes/log_sender.cpp processes/member_records.cpp
          processes/peer_reach.cpp processes/ps_process.cpp processes/rejoin_limit.cpp
          processes/resident_memory.cpp processes/run_place.cpp processes/signal_watcher.cpp
          processes/worker.cpp processes/worker_join.cpp
          reduction/bucket_tuner.cpp reduction/device_wire.cpp reduction/gradient_buckets.cpp
          reduction/gradient_sums.cpp reduction/gradient_wire.cpp reduction/half_wire.cpp
          reduction/reduction_layout.cpp reduction/word_wire.cpp reduction/wrapped_wire.cpp
          run/checkpoint_copier.cpp run/checkpoint_receiver.cpp run/checkpoint_transfer.cpp
          run/checkpoint_uploader.cpp run/checkpoint_writer.cpp run/data_transfer.cpp
          run/job_facts.cpp run/ledger.cpp run/member_logs.cpp run/network_interface.cpp
          run/records.cpp run/run_recorder.cpp run/run_recorder_end.cpp
          run/run_recorder_servers.cpp run/trace.cpp
          server_roles/ps_roles.cpp server_roles/ps_servers.cpp server_roles/server_address.cpp
          server_roles/server_places.cpp
          state/initial_weights.cpp state/starting_state.cpp state/state_donor.cpp
          state/state_fetch.cpp state/state_parts.cpp state/state_sync.cpp
          training/audit.cpp training/backend.cpp training/checkpoint_schedule.cpp
          training/commit.cpp training/compute_pool.cpp training/compute_pool_worker.cpp
          training/device.cpp training/device_exchange.cpp training/evaluation.cpp
          training/host_copy.cpp training/member_checks.cpp training/observer.cpp
          training/prepare_job.cpp training/state_exchange.cpp training/state_keeper.cpp
          training/step_reports.cpp training/step_work.cpp training/trainer.cpp
          training/worker_link.cpp
  PUBLIC mayfly_base mayfly_engine_config mayfly_nn mayfly_nn_cpu mayfly_nn_cuda mayfly_datasets
         mayfly_collectives
         mayfly_module_file mayfly_collectives_nccl
         mayfly_collectives_plan mayfly_parameter_server mayfly_elastic_core mayfly_elastic_net
         mayfly_cloud_hooks mayfly_cloud_hooks_notice mayfly_cloud_hooks_bundle
         mayfly_cloud_hooks_sign
  PRIVATE fmt::fmt Boost::json Threads::Threads)
