#pragma once

// Whether training diverges, as a pure state machine: it receives the training loss of every update
// and compares means over a few steps with the last ones: with their median, and with the largest
// of them, so that a job whose loss is noisy is not taken for one that diverges. One bad mean only
// raises a doubt; several in a row are a verdict. While there is a doubt what they are compared
// with stands still, and the doubt ends only when the loss is clearly lower than what raised it.

#include <cstdint>
#include <deque>
#include <string>

namespace mayfly::parameter_server {

struct DivergenceOptions {
  bool falls_back = false;    ///< the job goes on after a verdict
  double factor = 2;          ///< above 1; so many times the median speaks for divergence
  std::uint32_t windows = 3;  ///< at least 1; so many in a row, up to twice that at the beginning
  double uniform_loss = 0;    ///< of a network that knows nothing: log(classes); 0 = not known
  std::uint32_t slices = 4;   ///< of one mean
};

class DivergenceWatch {
 public:
  explicit DivergenceWatch(const DivergenceOptions& options) : options_(options) {}

  /// An update of so many slices; `loss` is the sum over its microbatches. One that all
  /// workers waited for (`is_judged` false) only shows what is usual.
  void add(double loss, std::uint32_t microbatches, std::uint32_t slices, bool is_judged);

  /// The last mean speaks for divergence, or one shortly before does.
  [[nodiscard]] bool doubts() const { return streak_ > 0; }
  /// For good.
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
  double sum_ = 0;  // of the open mean
  std::uint32_t microbatches_ = 0;
  std::uint32_t slices_ = 0;
  std::deque<double> means_;  // without doubt, the newest last
  std::uint32_t streak_ = 0;
  bool diverged_ = false;
  std::string reason_;
};

}  // namespace mayfly::parameter_server
