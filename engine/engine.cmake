mayfly_library(engine
  SOURCES audit.cpp backend.cpp bucket_tuner.cpp chaos_plan.cpp checkpoint_writer.cpp
          cloud.cpp cloud_plan.cpp cloud_startup.cpp commit.cpp
          compute_pool.cpp compute_pool_worker.cpp coordinator_main.cpp coordinator_process.cpp
          device.cpp exit_codes.cpp gradient_buckets.cpp gradient_sums.cpp gradient_wire.cpp
          half_wire.cpp initial_weights.cpp job.cpp launched_rank.cpp ledger.cpp local_launcher.cpp
          network_interface.cpp observer.cpp records.cpp reduction_layout.cpp
          rejoin_limit.cpp resident_memory.cpp run_recorder.cpp signal_watcher.cpp
          starting_state.cpp state_donor.cpp state_faults.cpp state_fetch.cpp state_parts.cpp
          state_sync.cpp trace.cpp duty_cycle.cpp injector.cpp trainer.cpp trainer_checks.cpp
          trainer_evaluate.cpp
          trainer_observe.cpp trainer_reports.cpp word_wire.cpp worker.cpp worker_link.cpp
          wrapped_wire.cpp worker_join.cpp parameter_server/ps_job.cpp parameter_server/ps_link.cpp
          parameter_server/ps_process.cpp parameter_server/ps_server.cpp
          parameter_server/ps_servers.cpp
          parameter_server/ps_snapshot.cpp parameter_server/ps_trainer.cpp
          parameter_server/sgd_shard.cpp
  PUBLIC mayfly_base mayfly_engine_config mayfly_nn mayfly_nn_cpu mayfly_datasets mayfly_collectives
         mayfly_collectives_plan mayfly_parameter_server mayfly_elastic_core mayfly_elastic_net
         mayfly_cloud_hooks mayfly_cloud_hooks_notice mayfly_cloud_hooks_bundle
         mayfly_cloud_hooks_sign
  PRIVATE fmt::fmt Boost::json Threads::Threads)
