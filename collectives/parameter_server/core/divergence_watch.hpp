#pragma once

// Detects whether training diverges, as a pure state machine. It receives the training loss of
// every update and compares means over a few steps with earlier means: with their median, and with
// the largest of them, so that a noisy loss is not taken for divergence. One high mean only raises
// a doubt; several in a row are a verdict. While there is a doubt, the earlier means are not
// updated, and the doubt ends only when the loss is clearly lower than the one that raised it.

#include <cstdint>
#include <deque>
#include <string>

namespace mayfly::parameter_server {

struct DivergenceOptions {
  bool falls_back = false;    ///< the job continues after a verdict
  double factor = 2;          ///< above 1; a mean above so many times the median is high
  std::uint32_t windows = 3;  ///< at least 1; so many in a row, at the beginning up to twice that
  double uniform_loss = 0;    ///< loss of an untrained network: log(classes); 0 = not known
  std::uint32_t slices = 4;   ///< slices of one mean
};

class DivergenceWatch {
 public:
  explicit DivergenceWatch(const DivergenceOptions& options) : options_(options) {}

  /// An update of so many slices; `loss` is the sum over its microbatches. If `is_judged` is false,
  /// all workers waited for the update, and it only changes the usual loss.
  void add(double loss, std::uint32_t microbatches, std::uint32_t slices, bool is_judged);

  /// The last mean was high, or one shortly before it.
  [[nodiscard]] bool doubts() const { return streak_ > 0; }
  /// This is final.
  [[nodiscard]] bool has_diverged() const { return diverged_; }
  /// Human-readable. Empty before has_diverged().
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  void judge(double mean);
  void learn(double mean);
  [[nodiscard]] double usual() const;
  [[nodiscard]] double largest() const;
  [[nodiscard]] std::uint32_t windows_needed() const;

  const DivergenceOptions options_;
  double sum_ = 0;  // sum of the mean in progress
  std::uint32_t microbatches_ = 0;
  std::uint32_t slices_ = 0;
  std::deque<double> means_;  // means without doubt, the newest last
  std::uint32_t streak_ = 0;
  bool diverged_ = false;
  std::string reason_;
};

}  // namespace mayfly::parameter_server
