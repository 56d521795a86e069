#pragma once

// One question to the planner: a JSON object whose fields are named as the columns of calibration
// files. For sources; no other folder includes it. Pure; any thread.

#include <boost/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::planner {

class Query {
 public:
  explicit Query(const boost::json::object& fields) : fields_(fields) {}

  // If a field has the wrong type, is out of range or is missing, these functions record it in
  // `problem`, which keeps the first such field, and return a value that is safe to compute with.
  [[nodiscard]] std::string text(const std::string& name);
  [[nodiscard]] std::string needed_text(const std::string& name);
  [[nodiscard]] std::optional<double> number(const std::string& name, double least, double most);
  [[nodiscard]] double needed_number(const std::string& name, double least, double most);
  /// A list of objects; empty without the field.
  [[nodiscard]] std::vector<Query> list(const std::string& name);
  [[nodiscard]] bool has(const std::string& name) const { return fields_.contains(name); }
  /// Whether the field has this value; if so it counts as used.
  [[nodiscard]] bool is(const std::string& name, std::string_view value);

  void complain(const std::string& what);
  void take_problem(const Query& part);
  [[nodiscard]] const std::optional<Error>& problem() const { return problem_; }
  /// The fields that were not read.
  [[nodiscard]] std::vector<std::string> unused() const;

 private:
  /// The field's value; null without it.
  [[nodiscard]] const boost::json::value* find(const std::string& name);

  const boost::json::object& fields_;
  std::set<std::string> used_;
  std::optional<Error> problem_;
};

}  // namespace mayfly::planner
