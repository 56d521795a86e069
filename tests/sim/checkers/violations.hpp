#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mayfly::sim {

/// The violations that the checkers have found in one run, in order.
class Violations {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }
  void expect(bool holds, const char* text) {
    if (!holds) {
      add(text);
    }
  }
  /// `text` is called only for a violation, because checkers check every event.
  template <typename Text>
  void expect(bool holds, Text text) {
    if (!holds) {
      add(text());
    }
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }
  [[nodiscard]] bool empty() const { return texts_.empty(); }

 private:
  std::vector<std::string> texts_;
};

}  // namespace mayfly::sim
