#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/time.hpp"
#include "engine/cloud/cloud_memory.hpp"
#include "engine/cloud/cloud_plan.hpp"
#include "engine/cloud/cloud_provider.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/config.hpp"
#include "engine/config/job_file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

TEST(CloudOffers, AreReadWithAllTheirParts) {
  const auto offers = parse_offers("n1@us-a:on_demand=0.5*2, @gpu, small=1");
  ASSERT_TRUE(offers.ok()) << offers.error().detail;
  ASSERT_EQ(offers.value().size(), 3u);
  const cloud_hooks::OfferTerms& first = offers.value()[0];
  EXPECT_EQ(first.offer, (cloud_hooks::Offer{"n1", "us-a", cloud_hooks::Market::kOnDemand}));
  EXPECT_DOUBLE_EQ(first.price_per_hour, 0.5);
  EXPECT_DOUBLE_EQ(first.speed, 2);
  EXPECT_EQ(offers.value()[1].offer, (cloud_hooks::Offer{"", "gpu", cloud_hooks::Market::kSpot}));
  EXPECT_EQ(offers.value()[2].offer.machine_type, "small");
  EXPECT_TRUE(parse_offers("").value().empty());
}

TEST(CloudOffers, WhatIsWrongIsNamed) {
  for (const char* bad : {"a=x", "a=-1", "a*0", "a:cheap", "a,,b", "a,a", ",", "a=1e99"}) {
    EXPECT_FALSE(parse_offers(bad).ok()) << bad;
  }
}

TEST(CloudOffers, MayHaveALimit) {
  EXPECT_EQ(parse_offers("a=1*2#3").value()[0].workers_most, 3u);
  for (const char* bad : {"a#0", "a#-1", "a#x", "a#1.5", "a#"}) {
    EXPECT_FALSE(parse_offers(bad).ok()) << bad;
  }
}

JobConfig composed(const std::string& composition) {
  JobConfig config;
  config.workers = 3;
  config.cloud_provider = "ec2";
  config.cloud_offers = "a@z=1#2,a@y=1,b=2,b:on_demand=3";
  config.cloud_composition = composition;
  return config;
}

TEST(CloudComposition, NamesOffersAsBrieflyAsItCan) {
  const auto offers = worker_offers(composed("1 x a@z:spot+ 1x b:on_demand + 1 x @y"));
  ASSERT_TRUE(offers.ok()) << offers.error().detail;
  std::vector<std::uint32_t> wanted;
  for (const cloud_hooks::OfferTerms& terms : offers.value()) {
    wanted.push_back(terms.wanted);
  }
  EXPECT_EQ(wanted, (std::vector<std::uint32_t>{1, 1, 0, 1}));
  EXPECT_EQ(offer_name(offers.value()[3].offer), "b:on_demand");
  const JobConfig config = composed("2 x a@z + 1 x b:spot");
  EXPECT_TRUE(validate(config).ok());
  JobConfig read;
  ASSERT_TRUE(apply_toml(read, to_job_file(config), "job.toml").ok());
  EXPECT_EQ(read.cloud_composition, config.cloud_composition);
  EXPECT_EQ(parse_offers(read.cloud_offers).value()[0].workers_most, 2u);
}

TEST(CloudComposition, TakesTypesWithAnAccelerator) {
  JobConfig config = composed("2 x n1+t4:1@z:spot + 1 x b");
  config.cloud_offers = "b=2,n1+t4:1@z:spot=1";
  const auto offers = worker_offers(config);
  ASSERT_TRUE(offers.ok()) << offers.error().detail;
  EXPECT_EQ(offers.value()[0].wanted, 1U);
  EXPECT_EQ(offers.value()[1].wanted, 2U);
  config.cloud_composition = "2 x n1 + 1 x b";
  EXPECT_EQ(worker_offers(config).error().detail,
            "cloud_composition: 'n1' is not one of cloud_offers");
}

std::string refusal_of(const JobConfig& config) {
  const Result<void> valid = validate(config);
  return valid.ok() ? "" : valid.error().detail;
}

TEST(CloudComposition, WhatIsWrongIsOneLine) {
  EXPECT_EQ(refusal_of(composed("2 a@z")),
            "cloud_composition: '2 a@z': expects N x TYPE@ZONE:MARKET + N x ..., as in 2 x a@zone "
            "+ 1 x b");
  EXPECT_EQ(refusal_of(composed("3 x c")), "cloud_composition: 'c' is not one of cloud_offers");
  EXPECT_EQ(refusal_of(composed("3 x b")),
            "cloud_composition: 'b' may be b:spot or b:on_demand of cloud_offers; add :MARKET or "
            "@ZONE");
  EXPECT_EQ(refusal_of(composed("3 x a@z")),
            "cloud_composition: 3 x a@z is above that offer's max_workers 2");
  EXPECT_EQ(refusal_of(composed("1 x a@y + 2 x a@y")),
            "cloud_composition: 'a@y:spot' is given twice");
  EXPECT_EQ(refusal_of(composed("2 x a@y")),
            "cloud_composition: has 2 workers, but workers is 3; give both the same number");
  for (const char* bad : {"0 x a@y", "x a@y", "3 x", "+", "3 x a@y +", "-3 x a@y", "1e9 x a@y"}) {
    EXPECT_NE(refusal_of(composed(bad)), "") << bad;
  }
  JobConfig other = composed("3 x a@y");
  EXPECT_EQ(refusal_of(other), "");
  other.cloud_on_demand_floor = 1;
  EXPECT_NE(refusal_of(other), "");
  other = composed("3 x a@y");
  other.cloud_replan = "propose";
  EXPECT_NE(refusal_of(other), "");
}

std::string refusal_of(JobConfig config, const std::string& offers) {
  config.cloud_provider = "ec2";
  config.cloud_offers = offers;
  const Result<void> valid = validate(config);
  return valid.ok() ? "" : valid.error().detail;
}

TEST(CloudOffers, WithAGpuThatIsTooOldAreRefusedForJobsOnGpus) {
  JobConfig config;
  EXPECT_EQ(refusal_of(config, "p3.2xlarge=1"), "") << "workers compute on the CPU";
  config.device = "cuda";
  EXPECT_EQ(refusal_of(config, "p3.2xlarge=1"),
            "cloud_offers: the GPU of p3.2xlarge, NVIDIA V100, has compute capability 7.0; device "
            "cuda needs 8.0 or newer");
  EXPECT_EQ(refusal_of(config, "p5.48xlarge=9,m5.large=1"),
            "cloud_offers: m5.large has no NVIDIA GPU, and workers compute on device cuda");
  EXPECT_EQ(refusal_of(config, "p5.48xlarge=9,unheard.of=1"), "");
  config.cloud_worker_args = "--device cpu";
  EXPECT_EQ(refusal_of(config, "m5.large=1"), "") << "workers have a flag of their own";
  config.device = "cpu";
  config.cloud_worker_args = "--threads 1 --device cuda:0";
  EXPECT_NE(refusal_of(config, "m5.large=1"), "");
  config.cloud_worker_args = "--data /scratch/cuda --device cpu";
  EXPECT_EQ(refusal_of(config, "m5.large=1"), "") << "only the flag's own word counts";
}

TEST(CloudOffers, OfSlurmHaveConstraintsThatMayHaveTheNameOfAMachineType) {
  JobConfig config;
  config.device = "cuda";
  config.cloud_provider = "slurm";
  config.cloud_offers = "n1-gpu@spot=1";
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().detail;
}

TEST(Evaluators, NeedAProviderOrHosts) {
  JobConfig config;
  config.evaluators = 1;
  EXPECT_NE(validate(config).error().detail.find("mayfly evaluator --run-dir"), std::string::npos);
  config.hosts = "a,b";
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().detail;
  config.hosts.clear();
  EXPECT_EQ(refusal_of(config, "p5.48xlarge=9"), "");
}

TEST(Evaluators, HaveOffersThatTellThemFromWorkers) {
  JobConfig config;
  config.evaluators = 1;
  config.evaluator_offers = "small@a=0.1";
  EXPECT_EQ(refusal_of(config, "small@b=0.1"), "");
  EXPECT_NE(refusal_of(config, "small@a=0.2"), "") << "the same machine type, zone and market";
  EXPECT_NE(refusal_of(config, ""), "") << "any server would do for a worker";
  config.evaluator_offers = "small@a:cheap";
  EXPECT_NE(refusal_of(config, "small@b=0.1").find("evaluator_offers: "), std::string::npos);
}

TEST(Evaluators, CountForTheTargetUnlessTheyHaveOffersOfTheirOwn) {
  JobConfig config;
  config.workers = 2;
  config.evaluators = 1;
  config.run_dir = "/nonexistent";
  const cloud_hooks::ReplacementOptions shared = replacement_options(config, {}).value();
  EXPECT_EQ(shared.target, 3u);
  EXPECT_EQ(shared.max, 3u);
  EXPECT_EQ(shared.evaluators, 0u);
  config.cloud_offers = "big=1";
  config.evaluator_offers = "small=0.1";
  const cloud_hooks::ReplacementOptions own = replacement_options(config, {}).value();
  EXPECT_EQ(own.target, 2u);
  EXPECT_EQ(own.evaluators, 1u);
  ASSERT_EQ(own.offers.size(), 2u);
  EXPECT_TRUE(own.offers[1].for_evaluator && !own.offers[0].for_evaluator);
  config.cloud_budget = 5;
  config.evaluator_offers = "small";
  EXPECT_FALSE(replacement_options(config, {}).ok()) << "a budget needs every price";
}

TEST(CloudLists, AreAsTheProviderNeedsThemUnlessATestSaysOtherwise) {
  JobConfig config;
  config.run_dir = "/nonexistent";
  const cloud_hooks::Capabilities cloud{.count_max = 1, .survives_us = true};
  const cloud_hooks::ReplacementOptions usual = replacement_options(config, cloud).value();
  EXPECT_EQ(usual.list_every, seconds(15));
  EXPECT_EQ(usual.absence_grace, seconds(45));
  ::setenv(kListSecondsVariable, "3", 1);
  const cloud_hooks::ReplacementOptions shorter = replacement_options(config, cloud).value();
  const cloud_hooks::ReplacementOptions local = replacement_options(config, {}).value();
  ::setenv(kListSecondsVariable, "soon", 1);
  const bool is_refused = !replacement_options(config, cloud).ok();
  ::unsetenv(kListSecondsVariable);
  EXPECT_EQ(shorter.list_every, seconds(3));
  EXPECT_EQ(shorter.absence_grace, seconds(3));
  EXPECT_EQ(local.absence_grace, Duration(0)) << "processes of this host are known exactly";
  EXPECT_TRUE(is_refused);
}

TEST(CloudMemory, ServersThatNobodyReleasedCostNoMoreThanTheirLifetime) {
  const test_support::TemporaryFolder folder;
  JobConfig config;
  config.run_dir = folder.path();
  config.cloud_offers = "a@z=1";
  config.cloud_lifetime_hours = 12;
  const double now = wall_clock_seconds();
  const auto after_hours = [&](const char* provider, double hours) {
    config.cloud_provider = provider;
    const std::string text = print_cloud_memory({5, 2, now - 3600 * hours, 1});
    EXPECT_TRUE(write_file_atomic(cloud_memory_path(folder.path()), text).ok());
    return replacement_options(config, {.count_max = 1, .survives_us = true}).value();
  };
  EXPECT_NEAR(after_hours("gce", 2).spent_before, 9, 0.1);
  EXPECT_EQ(after_hours("gce", 2).per_hour_before, 2);
  EXPECT_NEAR(after_hours("gce", 62).spent_before, 29, 0.1);
  EXPECT_EQ(after_hours("gce", 62).per_hour_before, 0) << "they have ended";
  EXPECT_NEAR(after_hours("exec", 62).spent_before, 129, 0.1) << "perhaps it ends none";
}

TEST(CloudMemory, AJobWhoseBudgetIsUsedUpWithoutACoordinatorHasTimeToSaveItsState) {
  const test_support::TemporaryFolder folder;
  JobConfig config;
  config.run_dir = folder.path();
  config.cloud_provider = "gce";
  config.cloud_offers = "a@z=1";
  config.cloud_budget = 10;
  const auto budget_after = [&](double spent, double hours) {
    const std::string text = print_cloud_memory({spent, 2, wall_clock_seconds() - 3600 * hours, 1});
    EXPECT_TRUE(write_file_atomic(cloud_memory_path(folder.path()), text).ok());
    return replacement_options(config, {.count_max = 1, .survives_us = true}).value().budget;
  };
  EXPECT_EQ(budget_after(5, 1), 10);
  EXPECT_NEAR(budget_after(5, 4).value(), 13 + 2 * 300.0 / 3600, 0.01);
  EXPECT_EQ(budget_after(13, 0), 10) << "only once";
  EXPECT_EQ(budget_after(5, 30), 10) << "its servers have ended";
}

TEST(CloudOffers, WithTwoKindsOfGpuAreRefusedWhereAllMustComputeTheSameBits) {
  JobConfig config;
  config.device = "cuda";
  EXPECT_NE(refusal_of(config, "p4d.24xlarge=9,p5.48xlarge=20")
                .find("p4d.24xlarge has NVIDIA A100 and p5.48xlarge has NVIDIA H100"),
            std::string::npos);
  EXPECT_EQ(refusal_of(config, "p4d.24xlarge=9,p4de.24xlarge=20"), "");
  config.reduction = "fp32";
  EXPECT_EQ(refusal_of(config, "p4d.24xlarge=9,p5.48xlarge=20"), "");
  config.audit_every = 10;
  EXPECT_NE(refusal_of(config, "p4d.24xlarge=9,p5.48xlarge=20"), "");
}

TEST(CloudSettings, ATableIsTheSameAsFlags) {
  JobConfig config;
  const Result<void> done = apply_toml(config, R"(
workers = 2
[cloud]
provider = "exec"
command = "run 'with space'"
budget = 5
[[cloud.offer]]
type = "n1"
zone = "a"
price = 0.25
[[cloud.offer]]
type = "n1"
market = "on_demand"
price = 1
speed = 2.5
)",
                                       "job.toml");
  ASSERT_TRUE(done.ok()) << done.error().detail;
  EXPECT_EQ(config.cloud_provider, "exec");
  EXPECT_DOUBLE_EQ(config.cloud_budget, 5);
  EXPECT_EQ(config.cloud_offers, "n1@a:spot=0.25*1,n1:on_demand=1*2.5");
  EXPECT_TRUE(validate(config).ok());
  JobConfig again;
  ASSERT_TRUE(apply_toml(again, to_toml(config), "saved").ok());
  EXPECT_EQ(again.cloud_offers, config.cloud_offers);
  EXPECT_EQ(again.cloud_command, config.cloud_command);
  JobConfig as_file;
  ASSERT_TRUE(apply_toml(as_file, to_job_file(config), "job.toml").ok());
  EXPECT_EQ(to_toml(as_file), to_toml(config));
  EXPECT_EQ(to_job_file(JobConfig{}), "");
}

TEST(CloudSettings, UnknownKeysAreErrorsWithALine) {
  JobConfig config;
  const Result<void> key = apply_toml(config, "[cloud]\nbudgt = 1\n", "job.toml");
  ASSERT_FALSE(key.ok());
  EXPECT_NE(key.error().detail.find("line 2"), std::string::npos) << key.error().detail;
  EXPECT_NE(key.error().detail.find("cloud_budget"), std::string::npos) << key.error().detail;
  const Result<void> offer = apply_toml(config, "[[cloud.offer]]\ntipe = \"a\"\n", "job.toml");
  ASSERT_FALSE(offer.ok());
  EXPECT_NE(offer.error().detail.find("'type'"), std::string::npos) << offer.error().detail;
  EXPECT_FALSE(apply_toml(config, "[cloud]\noffer = 1\n", "job.toml").ok());
}

TEST(CloudSettings, WhatCannotBeIsRefused) {
  const auto refused = [](const char* name, const char* value) {
    JobConfig config;
    config.cloud_provider = "local";
    EXPECT_TRUE(apply_setting(config, name, value, "test").ok());
    return !validate(config).ok();
  };
  EXPECT_TRUE(refused("cloud_provider", "azure"));
  EXPECT_TRUE(refused("cloud_provider", "exec"));  // without a command
  EXPECT_TRUE(refused("cloud_budget", "-1"));
  EXPECT_TRUE(refused("cloud_start_timeout", "0"));
  EXPECT_TRUE(refused("cloud_lifetime_hours", "0.03"));
  EXPECT_FALSE(refused("cloud_lifetime_hours", "0.1"));
  EXPECT_TRUE(refused("workers", "0"));
  EXPECT_FALSE(refused("cloud_max_workers", "1"));
}

TEST(CloudSettings, AJobWithStandbysNamesItselfAndAllItsCoordinators) {
  JobConfig config;
  config.cloud_provider = "local";
  config.cloud_job = "together";
  config.quorum = true;
  EXPECT_FALSE(validate(config).ok());
  config.cloud_coordinators = "10.0.0.1:7000";
  EXPECT_FALSE(validate(config).ok());
  config.cloud_coordinators = "10.0.0.1:7000,10.0.0.2:7000";
  EXPECT_TRUE(validate(config).ok());
  config.cloud_job.clear();
  EXPECT_NE(validate(config).error().detail.find("needs cloud_job"), std::string::npos);
  config.cloud_job = "together";
  config.cloud_coordinators = "10.0.0.1:7000,10.0.0.2";
  EXPECT_FALSE(validate(config).ok());
}

TEST(CloudSettings, ProcessesOfThisHostGetNoBundle) {
  JobConfig config;
  config.cloud_provider = "local";
  config.cloud_bundle = "bundle.tar.gz";
  EXPECT_FALSE(validate(config).ok());
  config.cloud_provider = "gce";
  EXPECT_TRUE(validate(config).ok());
}

TEST(CloudLabel, IsWhatEveryProviderCanWrite) {
  JobConfig config;
  EXPECT_EQ(cloud_label(config), "job");
  config.run_dir = "/shared/runs/My Run_1";
  EXPECT_EQ(cloud_label(config), "my-run-1");
  config.cloud_job = "Other";
  EXPECT_EQ(cloud_label(config), "other");
}

/// Run directories of two coordinators may have the same name, and both may use the same hosts.
TEST(CloudLabel, OnHostsTellsJobsApartByTheirTokensAndNamesThemInFull) {
  JobConfig config;
  config.cloud_provider = "ssh";
  config.run_dir = "/runs/" + std::string(60, 'a');
  config.token_file = ::testing::TempDir() + "mayfly_label_token";
  std::set<std::string> labels;
  for (const char* token : {"one", "two", "two\n", "two\r\n"}) {
    ASSERT_TRUE(write_file_atomic(config.token_file, token).ok());
    const std::string label = cloud_label(config);
    labels.insert(label);
    JobConfig named;  // as for `mayfly cloud list LABEL`
    named.cloud_provider = "ssh";
    named.cloud_job = label;
    EXPECT_EQ(cloud_label(named), label);
  }
  EXPECT_EQ(labels.size(), 2u) << "a line's end is not a part of the token";
  std::filesystem::remove(config.token_file);
}

/// If an answer is lost, the provider finds the jobs that it submitted, whichever thread repeats
/// the request.
TEST(CloudProviders, SlurmHasOneForAllThreads) {
  JobConfig config;
  config.cloud_provider = "slurm";
  EXPECT_EQ(make_cloud_providers(config, "job", {}, 9).value().size(), 1u);
  config.cloud_provider = "exec";
  config.cloud_command = "true";
  EXPECT_EQ(make_cloud_providers(config, "job", {}, 9).value().size(), 9u);
}

TEST(CloudProviders, OptionsOfSbatchThatHideJobsFromSqueueAreRefused) {
  JobConfig config;
  config.cloud_provider = "slurm";
  for (const char* bad : {"-M c2", "--clusters=c2", "--mem=1G -a 1-4", "--array=0-3"}) {
    config.cloud_sbatch = bad;
    EXPECT_FALSE(make_cloud_provider(config, "job", {}).ok()) << bad;
  }
  config.cloud_sbatch = "-A account --mem=1G";
  EXPECT_TRUE(make_cloud_provider(config, "job", {}).ok());
}

TEST(CloudProviders, ASubnetOfEc2ServesOneZone) {
  JobConfig config;
  config.cloud_provider = "ec2";
  config.cloud_options = "region=eu-west-1 image=ami-1 subnet=subnet-1";
  config.cloud_offers = "p3@eu-west-1a=1,g5@eu-west-1a=1,g5@subnet-2=1,g4";
  EXPECT_TRUE(make_cloud_provider(config, "job").ok());
  config.cloud_offers = "p3@eu-west-1a=1,p3@eu-west-1b=1";
  EXPECT_NE(make_cloud_provider(config, "job").error().detail.find("subnet-1"), std::string::npos);
}

TEST(SplitWords, KeepsQuotedSpaces) {
  EXPECT_EQ(split_words("a  'b c' d\"e f\"").value(),
            (std::vector<std::string>{"a", "b c", "de f"}));
  EXPECT_TRUE(split_words("").value().empty());
  EXPECT_FALSE(split_words("'open").ok());
  EXPECT_EQ(split_words("it\\'s a\\ b \"say \\\"a\\b\\\"\" 'c\\d' \\").value(),
            (std::vector<std::string>{"it's", "a b", "say \"a\\b\"", "c\\d", "\\"}));
}

TEST(SplitWords, GivesBackTheWordsOfAProgram) {
  const std::vector<std::string> words = {"python3", "it's", "", "a b", "\\", "\"$HOME\"", "'"};
  const auto split = split_words(shell_line(words));
  ASSERT_TRUE(split.ok()) << split.error().detail;
  EXPECT_EQ(split.value(), words);
}

}  // namespace
}  // namespace mayfly::engine
