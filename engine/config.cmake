# Settings, the run directory and checkpoints on disk: what the command line and the
# engine share. It starts no thread and opens no socket.
mayfly_library(engine_config
  SOURCES cloud/cloud_provider.cpp cloud/gpu_findings.cpp cloud/hosts.cpp
          config/cloud_offers.cpp config/config.cpp config/config_settings.cpp
          config/config_toml.cpp config/config_validate.cpp config/derived_settings.cpp
          config/device_choice.cpp config/ps_settings.cpp config/switch_order.cpp
          config/toml_keys.cpp
          faults/injection_plan.cpp
          run/checkpoint_store.cpp run/json_text.cpp run/line_file.cpp run/low_priority.cpp
          run/run_directory.cpp run/run_history.cpp run/start_files.cpp run/summary.cpp
          run/tensorboard.cpp run/unfinished_run.cpp
  PUBLIC mayfly_base mayfly_datasets_core mayfly_nn mayfly_elastic_core mayfly_parameter_server_core
         mayfly_cloud_hooks mayfly_cloud_hooks_gce mayfly_cloud_hooks_ec2
  PRIVATE mayfly_cloud_hooks_bundle mayfly_cloud_hooks_notice fmt::fmt
          tomlplusplus::tomlplusplus Boost::json)
