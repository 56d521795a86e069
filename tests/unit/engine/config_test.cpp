#include "engine/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "engine/config/ps_settings.hpp"
#include "engine/config/setting_variables.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string error_of(const Result<void>& result) {
  return result.ok() ? std::string("(no error)") : result.error().detail;
}

/// A value different from the default for every kind of setting.
std::string other_value(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kText: return "a \"quoted\" \\ value";
    case SettingKind::kWhole: return "37";
    case SettingKind::kReal: return "0.30000000000000004";
    case SettingKind::kSwitch: return setting.get(JobConfig{}) == "true" ? "false" : "true";
  }
  return "";
}

std::string validation_error(const std::function<void(JobConfig&)>& change) {
  JobConfig config;
  change(config);
  const Result<void> result = validate(config);
  if (!result.ok()) {
    EXPECT_EQ(result.error().code, Errc::kInvalidInput);
    EXPECT_THAT(result.error().detail, Not(HasSubstr("\n")));
  }
  return error_of(result);
}

TEST(Settings, HaveDistinctNamesAndHelp) {
  std::set<std::string> names;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_EQ(setting.is_switch, setting.kind == SettingKind::kSwitch) << setting.name;
  }
}

TEST(Settings, CoverTheFlagsThatPeopleKnow) {
  for (const char* name : {"workers",
                           "model",
                           "data",
                           "epochs",
                           "steps",
                           "global-batch",
                           "microbatch",
                           "lr",
                           "lr-schedule",
                           "momentum",
                           "weight-decay",
                           "label-smoothing",
                           "seed",
                           "backend",
                           "reduction",
                           "checkpoint-every",
                           "resume",
                           "run-dir",
                           "coordinator",
                           "token-file",
                           "chaos",
                           "min-workers",
                           "min-workers-timeout",
                           "skip-corrupt",
                           "digest-every",
                           "threads"}) {
    const Setting* setting = find_setting(name);
    ASSERT_NE(setting, nullptr) << name;
    EXPECT_EQ(flag_name(*setting), name);
  }
}

TEST(Settings, PrintWhatTheyParse) {
  for (const Setting& setting : settings()) {
    JobConfig config;
    const std::string text = other_value(setting);
    ASSERT_TRUE(setting.set(config, text).ok()) << setting.name;
    EXPECT_EQ(setting.get(config), text) << setting.name;
  }
}

TEST(Toml, OfAnyConfigurationReadsBackToTheSameValues) {
  JobConfig config;
  for (const Setting& setting : settings()) {
    ASSERT_TRUE(setting.set(config, other_value(setting)).ok());
  }
  JobConfig back;
  const Result<void> read = apply_toml(back, to_toml(config), "config.toml");
  ASSERT_TRUE(read.ok()) << error_of(read);
  EXPECT_EQ(to_toml(back), to_toml(config));
  for (const Setting& setting : settings()) {
    EXPECT_EQ(setting.get(back), setting.get(config)) << setting.name;
  }
}

TEST(Toml, OfTheDefaultsReadsBackToTheDefaults) {
  JobConfig back;
  back.lr = 7;
  ASSERT_TRUE(apply_toml(back, to_toml(JobConfig{}), "config.toml").ok());
  EXPECT_EQ(to_toml(back), to_toml(JobConfig{}));
}

TEST(Config, WorkersAreToldTheJobsSettingsAndNoProcessesOwn) {
  JobConfig job;
  job.lr = 7;
  job.phases = "bsp:50%,asp{lr=0.5x}";
  job.run_dir = "runs/here";
  job.workers = 9;
  job.cloud_command = "secret --key";
  const std::string told = job_settings_toml(job);
  EXPECT_THAT(told, HasSubstr("lr = 7\n"));
  for (const char* own : {"run_dir", "workers", "threads", "token_file", "coordinator", "cloud_"}) {
    EXPECT_THAT(told, Not(HasSubstr("\n" + std::string(own)))) << own;
  }
  EXPECT_THAT(job_settings_toml(job, {"workers"}), HasSubstr("\nworkers = 9\n"));
  JobConfig worker;
  ASSERT_TRUE(apply_toml(worker, told, "told").ok());
  EXPECT_EQ(worker.phases, job.phases);
  EXPECT_EQ(job_settings_toml(worker), told);
}

TEST(Toml, UnknownKeyIsAnErrorWithLineAndNearestName) {
  JobConfig config;
  const std::string error =
      error_of(apply_toml(config, "model = \"resnet20\"\n\nglobal_bacth = 64\n", "job.toml"));
  EXPECT_THAT(error, HasSubstr("job.toml line 3"));
  EXPECT_THAT(error, HasSubstr("'global_bacth'"));
  EXPECT_THAT(error, HasSubstr("did you mean 'global_batch'?"));
}

TEST(Toml, WrongTypeIsAnErrorWithLine) {
  JobConfig config;
  EXPECT_EQ(error_of(apply_toml(config, "\nlr = \"fast\"\n", "job.toml")),
            "job.toml line 2: lr expects a number, got a string");
  EXPECT_EQ(error_of(apply_toml(config, "workers = 1.5\n", "job.toml")),
            "job.toml line 1: workers expects a whole number, got a number with a fraction");
  EXPECT_EQ(error_of(apply_toml(config, "quiet = 1\n", "job.toml")),
            "job.toml line 1: quiet expects true or false, got a whole number");
  EXPECT_EQ(error_of(apply_toml(config, "model = 20\n", "job.toml")),
            "job.toml line 1: model expects a string, got a whole number");
}

TEST(Toml, BrokenSyntaxTablesAndNegativeCountsAreErrorsWithLine) {
  JobConfig config;
  EXPECT_THAT(error_of(apply_toml(config, "lr = 0.1\nmodel = \"resnet\n", "job.toml")),
              HasSubstr("job.toml line 2"));
  EXPECT_THAT(error_of(apply_toml(config, "lr = 0.1\nlr = 0.2\n", "job.toml")),
              HasSubstr("job.toml line 2"));
  EXPECT_THAT(error_of(apply_toml(config, "[train]\nlr = 0.1\n", "job.toml")),
              HasSubstr("without tables"));
  EXPECT_THAT(error_of(apply_toml(config, "workers = -2\n", "job.toml")),
              HasSubstr("workers expects a whole number"));
  EXPECT_THAT(error_of(apply_toml(config, "lr = inf\n", "job.toml")),
              HasSubstr("lr expects a number"));
}

TEST(Toml, PhasesMayBeTables) {
  JobConfig config;
  const std::string text =
      "lr = 0.5\n[[phase]]\nsync = \"bsp\"\nlength = \"6.25%\"\n"
      "[[phase]]\nsync = \"asp\"\nlr = \"0.5x\"\ncheckpoint_every = 500\n";
  ASSERT_TRUE(apply_toml(config, text, "job.toml").ok());
  EXPECT_EQ(config.phases, "bsp:6.25%,asp{checkpoint_every=500,lr=0.5x}");
  EXPECT_THAT(error_of(apply_toml(config, "[[phase]]\nsync = true\n", "job.toml")),
              HasSubstr("job.toml line 2: sync of a phase expects a string or a number"));
  EXPECT_THAT(error_of(apply_toml(config, "[phase]\nsync = \"bsp\"\n", "job.toml")),
              HasSubstr("[[phase]]"));
}

TEST(Toml, ServersAreANumberOrColocated) {
  JobConfig config;
  ASSERT_TRUE(apply_toml(config, "ps = 3\n", "job.toml").ok());
  EXPECT_EQ(config.ps, 3U);
  ASSERT_TRUE(apply_toml(config, "ps = \"colocated\"\n", "job.toml").ok());
  EXPECT_EQ(config.ps, 0U);
  EXPECT_THAT(to_toml(config), HasSubstr("\nps = \"colocated\"\n"));
  ASSERT_TRUE(apply_setting(config, "ps", "2", "flag").ok());
  EXPECT_EQ(config.ps, 2U);
  EXPECT_THAT(to_toml(config), HasSubstr("\nps = 2\n"));
  EXPECT_THAT(error_of(apply_setting(config, "ps", "collocated", "flag")),
              HasSubstr("a number of servers, or colocated"));
}

TEST(Toml, WithAnErrorChangesNothing) {
  JobConfig config;
  EXPECT_FALSE(apply_toml(config, "lr = 5.0\nnonsense = 1\n", "job.toml").ok());
  EXPECT_EQ(config.lr, JobConfig{}.lr);
}

TEST(Environment, NamesFollowTheSettings) {
  JobConfig config;
  const Result<void> done = apply_environment(
      config, {{"MAYFLY_GLOBAL_BATCH", "256"}, {"MAYFLY_AUGMENT", "false"}, {"PATH", "/bin"}});
  ASSERT_TRUE(done.ok()) << error_of(done);
  EXPECT_EQ(config.global_batch, 256u);
  EXPECT_FALSE(config.augment);
}

TEST(Environment, ReservedNamesAreLeftAloneAndOthersAreErrors) {
  JobConfig config;
  EXPECT_TRUE(apply_environment(config, {{"MAYFLY_CIFAR10_DIR", "/data"},
                                         {"MAYFLY_CIFAR100_DIR", "/data"},
                                         {"MAYFLY_SIM_SEEDS", "9"},
                                         {"MAYFLY_SIM_FIRST_SEED", "9"},
                                         {"MAYFLY_TEST_TORCH", "1"}})
                  .ok());
  const std::string error = error_of(apply_environment(config, {{"MAYFLY_WORKER", "3"}}));
  EXPECT_THAT(error, HasSubstr("environment MAYFLY_WORKER"));
  EXPECT_THAT(error, HasSubstr("did you mean 'workers'?"));
}

TEST(Environment, WhatKubernetesSetsForServicesIsNoSetting) {
  JobConfig config;
  const Result<void> done =
      apply_environment(config, {{"MAYFLY_SERVICE_HOST", "10.0.0.1"},
                                 {"MAYFLY_SERVICE_PORT", "7000"},
                                 {"MAYFLY_SERVICE_PORT_HTTP", "7000"},
                                 {"MAYFLY_PORT", "tcp://10.0.0.1:7000"},
                                 {"MAYFLY_PORT_7000_TCP", "tcp://10.0.0.1:7000"},
                                 {"MAYFLY_PORT_7000_TCP_ADDR", "10.0.0.1"},
                                 {"MAYFLY_PORT_7000_TCP_PORT", "7000"},
                                 {"MAYFLY_PORT_7000_TCP_PROTO", "tcp"},
                                 {"MAYFLY_COORDINATOR_PORT", "udp://10.0.0.1:7000"},
                                 {"MAYFLY_COORDINATOR_SERVICE_HOST", "10.0.0.1"}});
  EXPECT_TRUE(done.ok()) << error_of(done);
  EXPECT_EQ(config.port, 0u);
  EXPECT_TRUE(apply_environment(config, {{"MAYFLY_PORT", "7000"}}).ok());
  EXPECT_EQ(config.port, 7000u);
}

TEST(Environment, OfSettingsIsKnownByName) {
  ::setenv("MAYFLY_LR", "0.2", 1);
  ::setenv("MAYFLY_Seed", "2", 1);
  ::setenv("MAYFLY_TEST_OF_NAMES", "1", 1);
  const std::vector<std::string> names = setting_variables();
  for (const char* name : {"MAYFLY_LR", "MAYFLY_Seed", "MAYFLY_TEST_OF_NAMES"}) {
    ::unsetenv(name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("MAYFLY_LR", "MAYFLY_Seed"));
}

TEST(ApplySetting, TakesNoTextThatTheRecordsCannotHold) {
  JobConfig config;
  const Result<void> set = apply_setting(config, "run_dir", "runs/L\xe4ufe", "flag --run-dir");
  EXPECT_EQ(error_of(set), "flag --run-dir: run_dir is not valid UTF-8");
  EXPECT_TRUE(apply_setting(config, "run_dir", "runs/L\xc3\xa4ufe", "flag --run-dir").ok());
}

TEST(ApplySetting, NamesTheSourceOfABadValue) {
  JobConfig config;
  EXPECT_EQ(error_of(apply_setting(config, "lr", "fast", "flag --lr")),
            "flag --lr: lr expects a number, got 'fast'");
  EXPECT_EQ(error_of(apply_setting(config, "port", "70000", "flag --port")),
            "flag --port: port expects a whole number from 0 to 65535, got '70000'");
  for (const char* bad : {"", "1x", " 1", "-1", "1e3", "99999999999999999999"}) {
    EXPECT_FALSE(apply_setting(config, "seed", bad, "flag --seed").ok()) << bad;
  }
  for (const char* bad : {"", "nan", "inf", "1,5", "0.1x"}) {
    EXPECT_FALSE(apply_setting(config, "lr", bad, "flag --lr").ok()) << bad;
  }
}

TEST(Seeds, ThatOfTheDataIsThatOfTheJobUnlessItIsSet) {
  JobConfig config;
  config.seed = 7;
  EXPECT_EQ(seed_of_samples(config), 7U);
  EXPECT_EQ(describe_seeds(config), "7");
  ASSERT_TRUE(apply_setting(config, "data-seed", "9", "flag --data-seed").ok());
  EXPECT_EQ(seed_of_samples(config), 9U);
  EXPECT_EQ(config.seed, 7U);
  EXPECT_EQ(describe_seeds(config), "7, of the data 9");
}

TEST(Validate, AcceptsTheDefaults) {
  EXPECT_TRUE(validate(JobConfig{}).ok());
}

TEST(Validate, MicrobatchMustDivideTheGlobalBatch) {
  EXPECT_EQ(validation_error([](JobConfig& c) { c.microbatch = 48; }),
            "global_batch 128 is not a multiple of microbatch 48; the nearest that do are 32 and "
            "64");
}

TEST(Validate, RefusesEachValueOutOfRange) {
  using C = JobConfig;
  EXPECT_THAT(validation_error([](C& c) { c.microbatch = 0; }), HasSubstr("microbatch"));
  EXPECT_THAT(validation_error([](C& c) { c.global_batch = 0; }), HasSubstr("global_batch"));
  EXPECT_THAT(validation_error([](C& c) { c.lr = 0; }), HasSubstr("lr 0"));
  EXPECT_THAT(validation_error([](C& c) { c.momentum = 1; }), HasSubstr("momentum"));
  EXPECT_THAT(validation_error([](C& c) { c.weight_decay = -1; }), HasSubstr("weight_decay"));
  EXPECT_THAT(validation_error([](C& c) { c.label_smoothing = 1; }), HasSubstr("label_smoothing"));
  EXPECT_THAT(validation_error([](C& c) { c.epochs = 0; }), HasSubstr("epochs"));
  EXPECT_THAT(validation_error([](C& c) { c.workers = 0; }), HasSubstr("workers"));
  EXPECT_THAT(validation_error([](C& c) { c.image_size = 30; }), HasSubstr("multiples of 4"));
  EXPECT_THAT(validation_error([](C& c) { c.loader_threads = 2000; }), HasSubstr("loader_threads"));
  EXPECT_THAT(validation_error([](C& c) { c.min_workers = 0; }), HasSubstr("min_workers"));
  EXPECT_THAT(validation_error([](C& c) { c.digest_every = 0; }), HasSubstr("digest_every"));
  EXPECT_THAT(validation_error([](C& c) { c.straggler_factor = 2000; }),
              HasSubstr("is not above 1 and at most 1000"));
  EXPECT_THAT(validation_error([](C& c) { c.divergence_factor = 2000; }),
              HasSubstr("is not above 1 and at most 1000"));
  EXPECT_THAT(validation_error([](C& c) { c.keep_checkpoints = 0; }),
              HasSubstr("keep_checkpoints"));
}

TEST(Validate, TimesFitTheClock) {
  using C = JobConfig;
  EXPECT_EQ(validation_error([](C& c) { c.coordinator_timeout = 1e10; }),
            "coordinator_timeout 1e+10 is not above 0 and at most 1e+09 seconds");
  EXPECT_EQ(validation_error([](C& c) { c.checkpoint_minutes = 1e9; }),
            "checkpoint_minutes 1e+09 is not between 0 and 1e+07 minutes");
  EXPECT_THAT(validation_error([](C& c) { c.coordinator_timeout = 0; }), HasSubstr("above 0"));
  EXPECT_THAT(validation_error([](C& c) { c.min_workers_timeout = 1e10; }), HasSubstr("seconds"));
  EXPECT_THAT(validation_error([](C& c) { c.silence_max_ms = 1e13; }), HasSubstr("at most a day"));
  EXPECT_THAT(validation_error([](C& c) { c.evict_stragglers_after = 1e10; }),
              HasSubstr("evict_stragglers_after"));
  EXPECT_THAT(validation_error([](C& c) { c.cloud_lifetime_hours = 1e7; }), HasSubstr("hours"));
  EXPECT_THAT(validation_error([](C& c) { c.cloud_back_to_spot = -1; }), HasSubstr("between 0"));
  EXPECT_EQ(validation_error([](C& c) {
              c.coordinator_timeout = c.min_workers_timeout = 1e9;
              c.checkpoint_minutes = c.cloud_lifetime_hours = 0;
            }),
            "(no error)");
}

TEST(Validate, ImageSizesFitTheModel) {
  const auto error_of = [](const std::string& model, std::uint32_t size) {
    return validation_error([&](JobConfig& c) {
      c.model = model;
      c.image_size = size;
    });
  };
  EXPECT_EQ(error_of("resnet20", 64), "(no error)");
  EXPECT_EQ(error_of("resnet18", 96), "(no error)");
  EXPECT_THAT(error_of("resnet18", 100), HasSubstr("image_size: resnet18 cannot take 100x100"));
  EXPECT_THAT(error_of("resnet20", 4'294'967'295), HasSubstr("image_size: resnet20"));
}

TEST(Validate, StepsMakeEpochsUnneeded) {
  EXPECT_EQ(validation_error([](JobConfig& c) {
              c.epochs = 0;
              c.steps = 10;
            }),
            "(no error)");
}

TEST(Validate, ANumberOfServersNeedsAPolicy) {
  JobConfig config;
  config.ps = 2;
  EXPECT_THAT(error_of(check_servers(config)), HasSubstr("ps 2 needs --sync or --phases"));
  config.phases = "bsp:25%,asp";
  EXPECT_TRUE(check_servers(config).ok());
}

TEST(Validate, RatesByTheNumberOfWorkersAreForParameterServers) {
  JobConfig config;
  for (const char* rule : {"live-linear", "live-sqrt"}) {
    config.lr_rule = rule;
    config.sync = "";
    EXPECT_THAT(error_of(check_servers(config)),
                HasSubstr(std::string("lr_rule ") + rule + " needs --sync"));
    config.sync = "asp";
    EXPECT_TRUE(check_servers(config).ok());
  }
  EXPECT_THAT(validation_error([](JobConfig& c) { c.lr_rule = "alive"; }),
              HasSubstr("lr_rule 'alive' is not linear"));
}

TEST(Validate, BackupsAreOfTheWorkersThatTheJobBeginsWith) {
  JobConfig config;
  config.phases = "bsp:10%,backup:3-of-4";
  config.workers = 4;
  EXPECT_TRUE(validate(config).ok());
  EXPECT_TRUE(check_backups(config).ok());
  config.workers = 3;
  EXPECT_TRUE(validate(config).ok()) << "their number may be known later";
  EXPECT_EQ(error_of(check_backups(config)),
            "backup:3-of-4 is for 4 workers, and the job begins with 3 (workers)");
  config.phases = "bsp:10%,asp";
  EXPECT_TRUE(check_backups(config).ok());
}

TEST(Validate, SuggestsTheNearestKnownName) {
  EXPECT_THAT(validation_error([](JobConfig& c) { c.model = "resnet21"; }),
              HasSubstr("did you mean 'resnet20'?"));
  EXPECT_THAT(validation_error([](JobConfig& c) { c.lr_schedule = "cosinus"; }),
              HasSubstr("did you mean 'cosine'?"));
  EXPECT_THAT(validation_error([](JobConfig& c) { c.backend = "glo"; }),
              HasSubstr("did you mean 'gloo'?"));
  EXPECT_THAT(validation_error([](JobConfig& c) { c.reduction = "f32"; }),
              HasSubstr("did you mean 'fp32'?"));
}

TEST(Validate, NcclNeedsAGpuAndSaysWhatElseToUse) {
  EXPECT_THAT(validation_error([](JobConfig& c) { c.backend = "nccl"; }),
              testing::AllOf(HasSubstr("GPU memory"), HasSubstr("device is cpu"),
                             HasSubstr("use backend")));
  EXPECT_EQ(validation_error([](JobConfig& c) {
              c.backend = "nccl";
              c.device = "cuda:1";
            }),
            "(no error)");
}

TEST(Validate, NcclCarries32BitsToAllReduceOnly) {
  EXPECT_THAT(validation_error([](JobConfig& c) {
                c.backend = "nccl";
                c.device = "cuda";
                c.wire = "int16";
              }),
              testing::AllOf(HasSubstr("32 bits"), HasSubstr("wire is int16")));
  EXPECT_THAT(validation_error([](JobConfig& c) {
                c.backend = "nccl";
                c.device = "cuda";
                c.reduction = "fp32";
                c.wire = "bf16";
              }),
              HasSubstr("wire is bf16"));
}

TEST(Validate, DevicesAreNamedAndNumbered) {
  for (const char* device : {"cpu", "cuda", "cuda:0", "cuda:12"}) {
    JobConfig config;
    config.device = device;
    EXPECT_TRUE(validate(config).ok()) << device;
  }
  for (const char* device : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999"}) {
    EXPECT_THAT(validation_error([&](JobConfig& c) { c.device = device; }), HasSubstr("cuda:N"))
        << device;
  }
}

TEST(Validate, HowACpuComputesIsNoMatterOfAGpu) {
  EXPECT_THAT(validation_error([](JobConfig& c) { c.device = "cuda", c.isa = "avx2"; }),
              HasSubstr("device is cuda"));
  EXPECT_THAT(
      validation_error([](JobConfig& c) { c.device = "cuda:1", c.conv_kernels = "direct"; }),
      HasSubstr("device is cuda:1"));
  EXPECT_THAT(validation_error([](JobConfig& c) { c.device = "cuda", c.threads = 2; }),
              HasSubstr("one GPU"));
}

TEST(Validate, ArithmeticIsChosenByName) {
  for (const char* isa : {"auto", "avx512", "avx2", "portable"}) {
    EXPECT_EQ(validation_error([isa](JobConfig& c) { c.isa = isa; }), "(no error)");
  }
  for (const char* kernels : {"auto", "direct", "winograd"}) {
    EXPECT_EQ(validation_error([kernels](JobConfig& c) { c.conv_kernels = kernels; }),
              "(no error)");
  }
  EXPECT_THAT(validation_error([](JobConfig& c) { c.conv_kernels = "wingorad"; }),
              HasSubstr("did you mean 'winograd'?"));
}

TEST(Validate, CoordinatorIsHostAndPort) {
  for (const char* bad :
       {"localhost", ":80", "host:", "host:0", "host:65536", "host:8x", "::1:80", "[::1:80"}) {
    EXPECT_THAT(validation_error([bad](JobConfig& c) { c.coordinator = bad; }),
                HasSubstr("is not HOST:PORT"))
        << bad;
  }
  for (const char* good : {"localhost:1", "10.0.0.1:65535", "[::1]:80"}) {
    EXPECT_EQ(validation_error([good](JobConfig& c) { c.coordinator = good; }), "(no error)");
  }
}

TEST(NearestName, FindsTyposAndNothingElse) {
  const std::vector<std::string> known = {"workers", "model", "lr_schedule", "lr"};
  EXPECT_EQ(nearest_name("worker", known), "workers");
  EXPECT_EQ(nearest_name("wrokers", known), "workers");
  EXPECT_EQ(nearest_name("LR-Schedule", known), "lr_schedule");
  EXPECT_EQ(nearest_name("frobnicate", known), "");
  EXPECT_EQ(nearest_name("xy", {}), "");
}

}  // namespace
}  // namespace mayfly::engine
