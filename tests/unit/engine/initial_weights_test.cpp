#include "engine/state/starting_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/weight_file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

class InitialWeightsTest : public ::testing::Test {
 protected:
  void save(const std::string& folder, Step step = Step{40}) {
    const nn::CheckpointFiles files = nn::encode_checkpoint(model_, state_, 7, {});
    ASSERT_TRUE(save_checkpoint(folder, files, step, 2).ok());
  }
  static void damage(const std::string& checkpoint) {
    std::fstream torn(checkpoint + "/model.safetensors", std::ios::in | std::ios::out);
    torn.seekp(-1, std::ios::end);
    torn.put('\x55');
  }
  static Error error_of(const std::string& path, const std::string& model = "resnet20") {
    const Result<InitialWeights> read = read_initial_weights(path, model);
    EXPECT_FALSE(read.ok());
    return read.ok() ? Error{Errc::kIo, "read"} : read.error();
  }

  const test_support::TemporaryFolder folder_;
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
  const nn::ModelState state_ = nn::make_initial_state(model_, 7, 0, 0);
};

TEST_F(InitialWeightsTest, ComeFromAFileOrACheckpointOrARun) {
  const std::string file = folder_ / "weights";
  ASSERT_TRUE(write_file_atomic(file, ByteSpan(nn::encode_weight_file(model_, state_))).ok());
  save(folder_ / "run/checkpoints");
  const std::string checkpoint = folder_ / "run/checkpoints/step-40";
  for (const std::string& path : {file, checkpoint, folder_ / "run"}) {
    const Result<InitialWeights> read = read_initial_weights(path, "resnet20");
    ASSERT_TRUE(read.ok()) << read.error().detail;
    EXPECT_EQ(read.value().path, path == file ? file : checkpoint);
    nn::ModelState state = nn::make_initial_state(model_, 8, 5, -3);
    const Result<std::string> remark = apply_initial_weights(model_, read.value(), state);
    ASSERT_TRUE(remark.ok()) << remark.error().detail;
    EXPECT_EQ(remark.value(), "weights and statistics of " + read.value().path + " loaded");
    EXPECT_TRUE(std::ranges::equal(state.parameters.span(), state_.parameters.span()));
    EXPECT_EQ(state.committed, Step{0});
    EXPECT_EQ(state.exponents, std::vector<std::int32_t>(5, -3));
  }
}

TEST_F(InitialWeightsTest, OfARunWithADamagedNewestCheckpointAreThoseOfTheNewestIntactOne) {
  save(folder_ / "run/checkpoints", Step{30});
  save(folder_ / "run/checkpoints");
  damage(folder_ / "run/checkpoints/step-40");
  const Result<InitialWeights> read = read_initial_weights(folder_ / "run", "resnet20");
  ASSERT_TRUE(read.ok()) << read.error().detail;
  EXPECT_EQ(read.value().path, folder_ / "run/checkpoints/step-30");
  EXPECT_EQ(error_of(folder_ / "run/checkpoints/step-40").code, Errc::kCorrupt) << "as named";
}

TEST_F(InitialWeightsTest, EveryByteCountsInTheDigest) {
  const std::string file = folder_ / "weights";
  Bytes content = nn::encode_weight_file(model_, state_);
  ASSERT_TRUE(write_file_atomic(file, ByteSpan(content)).ok());
  const Digest before = read_initial_weights(file, "resnet20").value().digest();
  content.back() ^= std::byte{1};
  ASSERT_TRUE(write_file_atomic(file, ByteSpan(content)).ok());
  EXPECT_NE(read_initial_weights(file, "resnet20").value().digest(), before);
}

TEST_F(InitialWeightsTest, SayThatAClassifierOfOtherClassesStartsFresh) {
  const nn::Model other = nn::make_model("resnet20", 7).value();
  const InitialWeights weights{"there", nn::encode_weight_file(model_, state_)};
  nn::ModelState state = nn::make_initial_state(other, 8, 0, 0);
  EXPECT_EQ(apply_initial_weights(other, weights, state).value(),
            "weights and statistics of there loaded except the classifier: it has 10 classes "
            "there and 7 here, so it starts fresh");
}

TEST_F(InitialWeightsTest, BadOnesAreRefusedByName) {
  EXPECT_EQ(error_of(folder_ / "nothing").code, Errc::kNotFound);
  EXPECT_EQ(error_of(folder_.path()).code, Errc::kNotFound);  // an empty folder
  save(folder_ / "run");
  EXPECT_THAT(error_of(folder_ / "run", "resnet32").detail,
              HasSubstr("step-40 holds resnet20, not resnet32"));
  damage(folder_ / "run/step-40");
  const Error error = error_of(folder_ / "run");
  EXPECT_EQ(error.code, Errc::kCorrupt);
  EXPECT_THAT(error.detail, HasSubstr("model.safetensors: hash"));
  nn::ModelState state = nn::make_initial_state(model_, 8, 0, 0);
  const Result<std::string> applied = apply_initial_weights(model_, {"note", Bytes(20)}, state);
  EXPECT_THAT(applied.error().detail, HasSubstr("note: no safetensors file"));
}

}  // namespace
}  // namespace mayfly::engine
