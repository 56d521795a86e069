// The behaviour of every group, whatever its transport.
#include "collectives/group.hpp"

#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace mayfly::collectives
