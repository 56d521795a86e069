// Data that the program reads from disk and from its own workers: settings, scripted faults,
// records, checkpoints, weight files, the view log.

#include <gtest/gtest.h>

#include <fstream>

#include "base/log.hpp"
#include "elastic/net/view_log_file.hpp"
#include "engine/config/config.hpp"
#include "engine/faults/chaos_plan.hpp"
#include "engine/run/records.hpp"
#include "nn/checkpoint.hpp"
#include "nn/safetensors.hpp"
#include "tests/fuzz/driver.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly {
namespace {

using fuzz::bytes_of;
using fuzz::text_of;

TEST(FileFuzz, SettingsAreUnderstoodOrRefusedAndSurviveBeingWritten) {
  const auto read = [](ByteSpan bytes) -> std::string {
    engine::JobConfig config;
    if (const Result<void> done = engine::apply_toml(config, text_of(bytes), "job.toml");
        !done.ok()) {
      return done.error().detail;
    }
    const Result<void> valid = engine::validate(config);
    engine::JobConfig again;
    const std::string written = engine::to_toml(config);
    const Result<void> read_again = engine::apply_toml(again, written, "written");
    EXPECT_TRUE(read_again.ok()) << (read_again.ok() ? "" : read_again.error().detail);
    EXPECT_EQ(engine::to_toml(again), written);
    return valid.ok() ? "valid" : valid.error().detail;
  };
  fuzz::run({"settings",
             {bytes_of(engine::to_toml({})),
              bytes_of("model = \"resnet20\"\nglobal_batch = 64\nlr = 0.1\n# a word\n"
                       "chaos = \"kill@step=3:worker=1\"\naugment = false\nworkers = 3\n")},
             read,
             5'000});
}

TEST(FileFuzz, ScriptedFaultsAreUnderstoodOrRefused) {
  const auto read = [](ByteSpan bytes) -> std::string {
    const auto plan = engine::parse_chaos_plan(text_of(bytes));
    if (!plan.ok()) {
      return plan.error().detail;
    }
    for (std::uint32_t worker = 0; worker < 3; ++worker) {
      const std::string text = engine::chaos_of_worker(plan.value(), worker);
      EXPECT_TRUE(engine::parse_chaos_plan(text).ok()) << text;
    }
    return "a plan";
  };
  fuzz::run({"chaos_plan",
             {bytes_of("kill@step=3:worker=1,hang@step=20:for=500,join@step=9"),
              bytes_of("flip_weights@step=20:worker=1,stop@step=4:for=300,drain@step=7")},
             read});
}

TEST(FileFuzz, AWorkersReportIsUnderstoodOrRefused) {
  const auto read = [](ByteSpan bytes) -> std::string {
    const Result<engine::Record> record = engine::decode_record(bytes);
    if (!record.ok()) {
      return record.error().detail;
    }
    EXPECT_EQ(engine::encode_record(record.value()), Bytes(bytes.begin(), bytes.end()))
        << "two encodings";
    return "record " + std::string(record.value().index(), 'i');
  };
  engine::StepRecord step;
  step.digest = std::string(32, 'a');
  step.sample_hash = std::string(16, 'b');
  step.loss_scale = 1024;
  engine::ShardRecord shard;
  shard.staleness = {{0, 12}, {3, 1}};
  fuzz::run({"records",
             {encode_record(step), encode_record(engine::EvaluationRecord{7, 0.51, 1.5}),
              encode_record(engine::CheckpointRecord{7, true, "checkpoints/step-7"}),
              encode_record(engine::FatalRecord{"the loss is not finite"}),
              encode_record(engine::WorkerRecord{1.5, 7}),
              encode_record(engine::NoteRecord{"audit", "all is well"}), encode_record(shard),
              encode_record(engine::ProgramFailureRecord{2, "ValueError", "microbatch 1", {17}}),
              encode_record(engine::LogRecord{3, "12:00:00.000 worker info joined\n"})},
             read});
}

/// A small container with tensors of several shapes.
Bytes small_container() {
  static const Bytes data(64, std::byte{7});
  const ByteSpan all(data);
  return nn::encode_safetensors({{"conv1.weight", {"F32", {2, 2, 2}, all.first(32)}},
                                 {"exponents", {"I32", {4}, all.first(16)}},
                                 {"count", {"I64", {}, all.first(8)}}});
}

TEST(FileFuzz, AContainersTensorsLieInsideItAndFitTheirShapes) {
  const auto read = [](ByteSpan bytes) -> std::string {
    const auto tensors = nn::decode_safetensors(bytes);
    if (!tensors.ok()) {
      return tensors.error().detail;
    }
    for (const auto& [name, tensor] : tensors.value()) {
      const bool is_inside = tensor.bytes.empty() || (tensor.bytes.data() >= bytes.data() &&
                                                      tensor.bytes.data() + tensor.bytes.size() <=
                                                          bytes.data() + bytes.size());
      EXPECT_TRUE(is_inside) << name;
    }
    return "tensors";
  };
  fuzz::run({"safetensors", {small_container()}, read});
}

class CheckpointFuzz : public ::testing::Test {
 protected:
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
  const nn::CheckpointFiles files_ =
      nn::encode_checkpoint(model_, nn::make_initial_state(model_, 7, 0, 0), 7, {{"model", "x"}});
};

TEST_F(CheckpointFuzz, AManifestIsUnderstoodOrRefused) {
  const auto read = [](ByteSpan bytes) -> std::string {
    const auto info = nn::decode_manifest(bytes);
    return info.ok() ? "a manifest" : info.error().detail;
  };
  fuzz::run({"manifest", {files_.at(nn::kManifestFile)}, read});
}

TEST_F(CheckpointFuzz, AChangedFileIsNeverAnotherState) {
  const auto read = [this](ByteSpan bytes) -> std::string {
    nn::CheckpointFiles changed = files_;
    changed[nn::kManifestFile] = Bytes(bytes.begin(), bytes.end());
    const auto state = nn::decode_checkpoint(model_, changed);
    if (!state.ok()) {
      return state.error().detail;
    }
    const auto info = nn::decode_manifest(changed[nn::kManifestFile]);
    EXPECT_TRUE(info.ok() && info.value().digest == nn::digest_of(state.value()));
    return "a state";
  };
  fuzz::run({"manifest", {files_.at(nn::kManifestFile)}, read, 300});
}

TEST(FileFuzz, AViewLogOnDiskGoesOnOrIsRefused) {
  log::open("fuzz", "", log::Level::kError);  // it warns of every torn tail
  const test_support::TemporaryFolder folder;
  const std::string path = folder / "view.log";
  const auto read = [&path](ByteSpan bytes) -> std::string {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text_of(bytes);
    auto log = elastic::DurableViewLog::open(path);
    if (!log.ok()) {
      return log.error().detail;
    }
    const elastic::LogContents found = log.value()->contents();
    if (found.job == 0 || found.ended) {
      return "nothing to go on with";
    }
    EXPECT_TRUE(log.value()->go_on().ok());
    EXPECT_TRUE(log.value()->append(
        elastic::log_record::IncarnationStarted{next(found.incarnation)}, false));
    log.value().reset();
    const auto again = elastic::DurableViewLog::open(path);
    EXPECT_TRUE(again.ok());
    EXPECT_EQ(again.value()->contents().view, found.view);
    EXPECT_EQ(again.value()->contents().incarnation, next(found.incarnation));
    return "a job";
  };
  elastic::ViewLog log;
  Bytes file;
  const auto add = [&](const elastic::LogRecord& record) {
    const Bytes bytes = log.add(record);
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  add(elastic::log_record::JobStarted{77, 12, {{"model", "resnet20"}}});
  add(elastic::log_record::IncarnationStarted{Incarnation{1}});
  elastic::View view{ViewId{1}, 5, Step{3}, Rank{0}, {}, {}};
  view.members.push_back({MemberId{1}, "10.0.0.1:1", elastic::MicrobatchSet::range(0, 12), 0, 12});
  add(elastic::log_record::ViewPublished{view});
  fuzz::run({"view_log", {file}, read, 200});
}

}  // namespace
}  // namespace mayfly
