// The transfer of a training set to a GPU, and the decision whether it is kept there.

#include "nn/cuda/image_source.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "nn/cuda/device_choice.hpp"

namespace mayfly::nn::cuda {
namespace {

std::uint8_t byte_of(std::uint64_t sample, std::size_t at) {
  return static_cast<std::uint8_t>(mix64(sample * 5000 + at));
}

TrainingSet set_of(std::uint64_t samples, std::size_t image_bytes) {
  TrainingSet set;
  set.resident.samples = samples;
  set.image_bytes = image_bytes;
  set.read = [](std::uint64_t sample, std::span<std::uint8_t> pixels) -> Result<void> {
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = byte_of(sample, i);
    }
    return {};
  };
  return set;
}

TEST(TrainingSet, PiecesAreAllOfItInOrder) {
  const TrainingSet set = set_of(3001, 3072);  // more than two pieces, the last one shorter
  std::size_t end = 0;
  std::size_t pieces = 0;
  const Result<void> read =
      read_in_pieces(set, [&](std::size_t first, std::span<const std::uint8_t> piece) {
        EXPECT_EQ(first, end);
        EXPECT_EQ(piece.size() % set.image_bytes, 0U);
        for (std::size_t i = 0; i < piece.size(); i += 97) {
          EXPECT_EQ(piece[i], byte_of((first + i) / 3072, (first + i) % 3072));
        }
        end += piece.size();
        ++pieces;
        return Result<void>();
      });
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(end, 3001U * 3072U);
  EXPECT_GT(pieces, 2U);
}

TEST(TrainingSet, AnErrorOfEitherSideEndsIt) {
  TrainingSet set = set_of(3001, 3072);
  const Result<void> not_taken =
      read_in_pieces(set, [](std::size_t first, std::span<const std::uint8_t> /*piece*/) {
        return first > 0 ? Result<void>(Error{Errc::kUnsupported, "full"}) : Result<void>();
      });
  ASSERT_FALSE(not_taken.ok());
  EXPECT_EQ(not_taken.error().detail, "full");
  set.read = [](std::uint64_t sample, std::span<std::uint8_t> /*pixels*/) {
    return sample == 2999 ? Result<void>(Error{Errc::kIo, "torn"}) : Result<void>();
  };
  const Result<void> not_read = read_in_pieces(
      set, [](std::size_t /*first*/, std::span<const std::uint8_t> /*piece*/) -> Result<void> {
        return {};
      });
  ASSERT_FALSE(not_read.ok());
  EXPECT_EQ(not_read.error().detail, "torn");
}

TEST(TrainingSet, DrawsAreOfItsSamples) {
  const ResidentSet set{.samples = 10};
  EXPECT_TRUE(are_of(set, std::vector<SampleDraw>{{.sample = 0}, {.sample = 9, .epoch = 100}}));
  EXPECT_FALSE(are_of(set, std::vector<SampleDraw>{{.sample = 0}, {.sample = 10}}));
}

TEST(TrainingSet, GoesToTheGpuOnlyIfThereIsRoomBesideEverythingElse) {
  const Model model = make_usual_model("resnet20").value();
  const StepPlanOptions with{.set = ResidentSet{.samples = 1000}};
  const std::size_t without = make_step_plan(model, 8, {}).memory.total();
  const std::size_t all = make_step_plan(model, 8, with).memory.total();
  EXPECT_GE(all, without + 1000 * 3072 - std::size_t{8} * 3 * 1024 * sizeof(float));
  constexpr std::size_t kSums = 12345;
  const std::size_t enough = all + kSums + kFreeBesideSet;
  for (const auto& [bytes, on_device] :
       {std::pair{enough, true}, std::pair{enough - 1, false}, std::pair{without + kSums, false}}) {
    const Result<StepPlan> plan = make_fitting_plan(model, 8, with, {bytes, kSums});
    ASSERT_TRUE(plan.ok()) << plan.error().detail;
    EXPECT_EQ(plan.value().set.has_value(), on_device) << bytes;
    EXPECT_LE(plan.value().memory.total() + kSums, bytes);
  }
  EXPECT_FALSE(make_fitting_plan(model, 8, with, {without + kSums - 1, kSums}).ok());
  const Result<StepPlan> none = make_fitting_plan(model, 8, {}, {enough, kSums});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none.value().set.has_value());
}

}  // namespace
}  // namespace mayfly::nn::cuda
