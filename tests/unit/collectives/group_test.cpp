// The behaviour of every group, whatever its transport.
#include "collectives/group.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "collectives/queued_group.hpp"

namespace mayfly::collectives {
namespace {

class LateWork final : public Work {
 public:
  explicit LateWork(const bool& is_aborted) : is_aborted_(is_aborted) {}
  ~LateWork() override { EXPECT_TRUE(is_aborted_) << "it would wait without end"; }
  Result<void> wait(Instant) override { return Error{Errc::kDeadline, "nobody has answered"}; }

 private:
  const bool& is_aborted_;
};

class LateGroup final : public Group {
 public:
  [[nodiscard]] ViewId view() const override { return ViewId{1}; }
  [[nodiscard]] Rank rank() const override { return Rank{0}; }
  [[nodiscard]] std::uint32_t size() const override { return 2; }
  std::unique_ptr<Work> all_reduce(void*, std::size_t, DataType, ReduceOp) override {
    return late();
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte>, Rank) override { return late(); }
  std::unique_ptr<Work> all_gather(ByteSpan, std::span<std::byte>) override { return late(); }
  std::unique_ptr<Work> barrier() override { return late(); }
  void abort() noexcept override { is_aborted_ = true; }

  [[nodiscard]] bool is_aborted() const { return is_aborted_; }

 private:
  std::unique_ptr<Work> late() { return std::make_unique<LateWork>(is_aborted_); }

  bool is_aborted_ = false;
};

TEST(Group, IsAbortedIfAnOperationIsLateSoThatItCanEnd) {
  LateGroup barred;
  EXPECT_EQ(barred.wait_or_abort(*barred.barrier(), Instant{}).error().code, Errc::kDeadline);
  EXPECT_TRUE(barred.is_aborted());
  LateGroup summed;
  float value = 0;
  const Result<void> done =
      summed.all_reduce_blocking(&value, 1, DataType::kFloat32, ReduceOp::kSum, Instant{});
  EXPECT_EQ(done.error().code, Errc::kDeadline);
  EXPECT_TRUE(summed.is_aborted());
}

/// An engine that completes every operation at once, and whose answer to returns_by() changes after
/// the first question about an operation, as if the deadline had come too close meanwhile.
class HesitantEngine final : public GroupEngine {
 public:
  void begin(const Operation& /*operation*/) override { was_asked_ = false; }
  Result<bool> advance(std::optional<Instant> /*until*/) override { return true; }
  bool returns_by(std::optional<Instant> /*until*/) const override {
    return !was_asked_.exchange(true);
  }
  void abort() noexcept override {}

 private:
  mutable std::atomic<bool> was_asked_{false};
};

// From the second operation on, the group's thread certainly sleeps when the operation is started.
TEST(QueuedGroup, ItsThreadCarriesOutAnOperationForWhichTheDeadlineHasComeTooClose) {
  const std::unique_ptr<Group> group =
      make_queued_group(ViewId{1}, Rank{0}, 2, std::make_unique<HesitantEngine>());
  for (int i = 0; i < 3; ++i) {
    float value = 0;
    const Result<void> done = group->all_reduce_blocking(
        &value, 1, DataType::kFloat32, ReduceOp::kSum, monotonic_now() + seconds(20));
    ASSERT_TRUE(done.ok()) << done.error().detail;
  }
}

}  // namespace
}  // namespace mayfly::collectives
