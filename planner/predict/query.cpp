#include "planner/predict/query.hpp"

#include <algorithm>

namespace mayfly::planner {

const boost::json::value* Query::find(const std::string& name) {
  used_.insert(name);
  const boost::json::value* value = fields_.if_contains(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::string Query::text(const std::string& name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_string()) {
    complain(name + " is not a text");
    return {};
  }
  return std::string(value->get_string());
}

std::string Query::needed_text(const std::string& name) {
  std::string value = text(name);
  if (value.empty()) {
    complain(name + " is missing");
  }
  return value;
}

std::optional<double> Query::number(const std::string& name, double least, double most) {
  const boost::json::value* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number()) {
    complain(name + " is not a number");
    return std::nullopt;
  }
  const auto number = value->to_number<double>();
  if (!(number >= least && number <= most)) {
    complain(name + " is out of range");
    return std::nullopt;
  }
  return number;
}

double Query::needed_number(const std::string& name, double least, double most) {
  const std::optional<double> value = number(name, least, most);
  if (!value) {
    complain(name + " is missing");
  }
  return value.value_or(std::max(least, 1.0));
}

std::vector<Query> Query::list(const std::string& name) {
  std::vector<Query> parts;
  const boost::json::value* value = find(name);
  if (value == nullptr) {
    return parts;
  }
  if (!value->is_array()) {
    complain(name + " is not a list");
    return parts;
  }
  for (const boost::json::value& part : value->get_array()) {
    if (!part.is_object()) {
      complain(name + " has an entry that is no object");
      return {};
    }
    parts.emplace_back(part.get_object());
  }
  return parts;
}

bool Query::is(const std::string& name, std::string_view value) {
  const boost::json::value* found = fields_.if_contains(name);
  const bool same = found != nullptr && found->is_string() && found->get_string() == value;
  if (same) {
    used_.insert(name);
  }
  return same;
}

void Query::complain(const std::string& what) {
  if (!problem_) {
    problem_ = Error{Errc::kInvalidInput, what};
  }
}

void Query::take_problem(const Query& part) {
  if (!problem_) {
    problem_ = part.problem_;
  }
}

std::vector<std::string> Query::unused() const {
  std::vector<std::string> names;
  for (const auto& field : fields_) {
    if (!used_.contains(std::string(field.key()))) {
      names.emplace_back(field.key());
    }
  }
  return names;
}

}  // namespace mayfly::planner
